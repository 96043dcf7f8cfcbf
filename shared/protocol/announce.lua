#!lua flags=allow-oom
-- Writes a process's registry record, which expires with its lease, and the record of a worker's model. Forgets models
-- that no worker has announced for long, and the ones announced longest ago beyond a bound.
-- Runs even when the store is at its memory limit, so that no process disappears for lack of memory. All times are the
-- store's own. After the store's clock was set back, leases that end later than one lease from now are shortened;
-- otherwise dead processes would stay listed.
-- KEYS: record, index of records, models, when they were announced
-- ARGV: id, record, lease (ms), seconds for which ids stay in the index after their lease,
--       then for a serving worker: model, model record, seconds for which models are remembered, their maximum number
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
  local function forget(names)
    for _, name in ipairs(names) do
      redis.call('HDEL', KEYS[3], name)
      redis.call('ZREM', KEYS[4], name)
    end
  end
  redis.call('HSET', KEYS[3], ARGV[5], ARGV[6])
  redis.call('ZADD', KEYS[4], string.format('%.3f', now), ARGV[5])
  if redis.call('HLEN', KEYS[3]) > redis.call('ZCARD', KEYS[4]) then
    for _, name in ipairs(redis.call('HKEYS', KEYS[3])) do
      -- Written by an older version.
      redis.call('ZADD', KEYS[4], 'NX', string.format('%.3f', now - 1), name)
    end
  end
  forget(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', string.format('%.3f', now - tonumber(ARGV[7]))))
  local surplus = redis.call('HLEN', KEYS[3]) - tonumber(ARGV[8])
  if surplus > 0 then
    forget(redis.call('ZRANGE', KEYS[4], 0, surplus - 1))
  end
end
