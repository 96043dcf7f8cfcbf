#!lua flags=allow-oom
-- Grants or renews a node's placement lease of a model: only nodes with a lease load it. All times are the store's own.
-- Runs also at the store's memory limit, so that a loaded model keeps its lease.
-- KEYS: placements
-- ARGV: node, lease (ms), maximum number of leases
-- Returns 1 if the node has the lease, else 0.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = now + tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
-- A lease that ends too late was written before the store's clock was set back.
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ends, '+inf')) do
  redis.call('ZADD', KEYS[1], ends, node)
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], ends, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
