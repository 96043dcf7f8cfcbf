#!lua flags=allow-oom
-- Writes a process's registry record, which expires with its lease, and the permanent record of a worker's model.
-- Runs even when the store is at its memory limit, so that no process disappears for lack of memory. All times are the
-- store's own. After the store's clock was set back, leases that end later than one lease from now are shortened;
-- otherwise dead processes would stay listed.
-- KEYS: record, index of records, models
-- ARGV: id, record, lease (ms), seconds for which ids stay in the index after their lease,
--       then for a serving worker: model, model record
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
