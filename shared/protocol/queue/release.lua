#!lua flags=allow-oom
-- Returns a worker's claimed jobs to their old position in the queue (drain, engine crash).
-- KEYS: queue, inflight, load
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, worker, cause,
--       (id, attempt, suspect: 0/1)...
-- Returns the number of requeued jobs.
local back = 0
for at = 7, #ARGV, 3 do
  local claim = redis.pcall('HMGET', ARGV[2] .. ARGV[at], 'attempt', 'worker')
  if claim[1] == ARGV[at + 1] and claim[2] == ARGV[5] then
    if ARGV[at + 2] == '1' then
      redis.pcall('HINCRBY', ARGV[2] .. ARGV[at], 'crashes', 1)
    end
    if requeue(ARGV[at], KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[6]) then
      back = back + 1
    end
  end
end
for _ = 1, back do
  wake(KEYS[3], ARGV[4])
end
return back
