-- Puts jobs whose lease has lapsed back into the queue.
-- KEYS: queue, inflight, load
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, most jobs
-- Returns the ids that wait again.
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms(), 'LIMIT', 0, ARGV[5])
local back = {}
for _, job in ipairs(lapsed) do
  if requeue(job, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]) then
    redis.call('HINCRBY', ARGV[2] .. job, 'lapses', 1)
    back[#back + 1] = job
  end
end
for _ = 1, #back do
  wake(KEYS[3], ARGV[4])
end
return back
