#!lua flags=allow-oom
-- Advertises a process until its lease ends, and the model that a worker serves for good. May run while the store is at
-- its memory limit: nobody is gone because there is no room. All times are the store's own.
-- A lease never ends later than one lease from now, unless the store's clock was set back: such ends are cut, or the
-- dead would stay listed for as long as the clock went back.
-- KEYS: advertisement, index of the living, models
-- ARGV: id, advertisement, lease (ms), seconds for which ids are remembered after their lease,
--       then for a worker that serves: model, its facts
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local lease_end = string.format('%.3f', now + tonumber(ARGV[3]) / 1000)
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], lease_end, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.3f', now - tonumber(ARGV[4])))
local prefix = string.sub(KEYS[1], 1, -#ARGV[1] - 1)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. lease_end, '+inf')) do
  redis.call('ZADD', KEYS[2], lease_end, id)
  redis.call('PEXPIRE', prefix .. id, ARGV[3])
end
if ARGV[5] then
  redis.call('HSET', KEYS[3], ARGV[5], ARGV[6])
end
