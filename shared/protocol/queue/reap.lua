#!lua flags=allow-oom
-- Returns jobs with expired leases to the queue.
-- During an outage of the store no lease can be renewed. Leases that expired meanwhile are extended once by the first
-- reaper afterwards. An outage is detected by the time since the last reaping.
-- KEYS: queue, inflight, load, time of the last reaping
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, maximum of jobs, lease (ms),
--       TTL (ms) of the time of the last reaping
-- Returns the milliseconds until the next lease ends (-1 without any lease), then the ids of the requeued jobs.
local now, lease = now_ms(), tonumber(ARGV[6])
local blind = now - (tonumber(redis.call('GET', KEYS[4])) or now) > lease / 2
redis.call('SET', KEYS[4], string.format('%.0f', now), 'PX', ARGV[7])

-- A lease that ends later than one lease from now was granted before the store's clock was set back.
local lease_end = string.format('%.0f', now + lease)
for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. lease_end, '+inf', 'LIMIT', 0, ARGV[5])) do
  redis.call('ZADD', KEYS[2], lease_end, job)
end

local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[5])
local back = {-1}
for at = 1, #expired, 2 do
  local job, state = expired[at], ARGV[2] .. expired[at]
  local claim = redis.pcall('HMGET', state, 'worker', 'spared')
  if blind and claim[1] and claim[2] ~= expired[at + 1] then
    redis.call('ZADD', KEYS[2], lease_end, job)
    redis.call('HSET', state, 'spared', lease_end)
  elseif requeue(job, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], 'worker_lost') then
    redis.pcall('HINCRBY', state, 'lost_workers', 1)
    back[#back + 1] = job
  end
end
for _ = 2, #back do
  wake(KEYS[3], ARGV[4])
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if first[2] then
  back[1] = math.max(0, math.ceil(tonumber(first[2]) - now))
end
return back
