-- Accepts jobs all or none, and wakes workers for them.
-- KEYS: queue, load
-- ARGV: payload prefix, worker channel prefix, payload TTL (ms), most waiting jobs, lead (ms) over jobs that
--       come at the same time, then (id, payload) pairs
-- Returns the queue's length before, or -(length) - 1 when the jobs don't fit.
local waiting = redis.call('ZCARD', KEYS[1])
local jobs = (#ARGV - 5) / 2
if waiting + jobs > tonumber(ARGV[4]) then
  return -waiting - 1
end
local score = now_ms() - tonumber(ARGV[5])
for at = 6, #ARGV, 2 do
  redis.call('SET', ARGV[1] .. ARGV[at], ARGV[at + 1], 'PX', ARGV[3])
  redis.call('ZADD', KEYS[1], string.format('%.3f', score), ARGV[at])
end
for _ = 1, jobs do
  wake(KEYS[2], ARGV[2])
end
return waiting
