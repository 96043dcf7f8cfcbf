#!lua flags=allow-oom
-- Returns jobs with expired leases to the queue.
-- During an outage of the store no lease can be renewed. Leases that expired meanwhile are extended once by the first
-- reaper afterwards. An outage is detected by the time since the last reaping.
-- KEYS: see the prelude, time of the last reaping, moves, booking
-- ARGV: maximum of jobs, lease (ms)
-- Returns the milliseconds until the next lease ends (-1 without any lease), whether the caller must count what ended jobs
-- have used (0/1; one in a third of a lease), then the ids of the requeued jobs.
local now, lease = now_ms(), tonumber(ARGV[2])
local blind = now - (tonumber(redis.call('GET', KEYS[9])) or now) > lease / 2
redis.call('SET', KEYS[9], string.format('%.0f', now), 'PX', JOB_TTL)

-- A lease that ends later than one lease from now was granted before the store's clock was set back.
local lease_end = string.format('%.0f', now + lease)
for _, job in ipairs(redis.call('ZRANGEBYSCORE', INFLIGHT, '(' .. lease_end, '+inf', 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', INFLIGHT, lease_end, job)
end

local expired = redis.call('ZRANGEBYSCORE', INFLIGHT, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local back = {-1, 0}
for at = 1, #expired, 2 do
  local job, state = expired[at], STATE .. expired[at]
  if blind and redis.call('HEXISTS', CLAIMS, job) == 1 and redis.call('HGET', state, 'spared') ~= expired[at + 1] then
    redis.call('ZADD', INFLIGHT, lease_end, job)
    redis.call('HSET', state, 'spared', lease_end)
  elseif requeue(job, 'worker_lost', KEYS[10]) then
    redis.call('HINCRBY', state, 'lost_workers', 1)
    back[#back + 1] = job
  end
end
for _ = 3, #back do
  wake()
end
local first = redis.call('ZRANGE', INFLIGHT, 0, 0, 'WITHSCORES')
if first[2] then
  back[1] = math.max(0, math.ceil(tonumber(first[2]) - now))
end
if redis.call('XLEN', ENDED) > 0 and redis.call('SET', KEYS[11], '', 'NX', 'PX', math.ceil(lease / 3)) then
  back[2] = 1
  redis.call('PEXPIRE', ENDED, USAGE_TTL)
end
return back
