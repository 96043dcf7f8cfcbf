#!lua flags=allow-oom
-- Puts jobs whose lease has lapsed back into the queue.
-- While the store is away, nobody can renew: leases that lapsed in such a time are renewed once, by the first who is
-- back. That the store was away shows in the time since anybody reaped.
-- KEYS: queue, inflight, load, last reaped
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, most jobs, lease (ms), TTL of the time (ms)
-- Returns how long (ms) the lease that ends first still holds, -1 where none is held, and then the ids that wait again.
local now, lease = now_ms(), tonumber(ARGV[6])
local blind = now - (tonumber(redis.call('GET', KEYS[4])) or now) > lease / 2
redis.call('SET', KEYS[4], string.format('%.0f', now), 'PX', ARGV[7])

-- A lease that ends later than one lease from now was given before the store's clock was set back.
local lease_end = string.format('%.0f', now + lease)
for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. lease_end, '+inf', 'LIMIT', 0, ARGV[5])) do
  redis.call('ZADD', KEYS[2], lease_end, job)
end

local lapsed = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[5])
local back = {-1}
for at = 1, #lapsed, 2 do
  local job, state = lapsed[at], ARGV[2] .. lapsed[at]
  local claim = redis.pcall('HMGET', state, 'worker', 'spared')
  if blind and claim[1] and claim[2] ~= lapsed[at + 1] then
    redis.call('ZADD', KEYS[2], lease_end, job)
    redis.call('HSET', state, 'spared', lease_end)
  elseif requeue(job, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]) then
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
