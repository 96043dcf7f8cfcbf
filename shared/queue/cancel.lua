-- Ends jobs whose client has gone: taken out of the queue, or their worker told.
-- KEYS: queue
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, ids...
-- Returns the number of jobs that were still waiting.
local waiting = 0
for at = 5, #ARGV do
  local job = ARGV[at]
  if redis.call('ZREM', KEYS[1], job) == 1 then
    forget(job, ARGV[1], ARGV[2], ARGV[3])
    waiting = waiting + 1
  else
    local worker = redis.call('HGET', ARGV[2] .. job, 'worker')
    if worker then
      redis.call('HSET', ARGV[2] .. job, 'cancelled', 1)
      redis.call('PUBLISH', ARGV[4] .. worker, 'cancel ' .. job)
    end
  end
end
return waiting
