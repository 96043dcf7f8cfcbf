#!lua
-- Adds a batch, unless its owner has too many unfinished ones. Deletes the oldest that have ended, if there are too many.
-- KEYS: batch, index of the owner's batches, unfinished batches
-- ARGV: id, record, time of creation (Unix seconds), maximum of unfinished batches, maximum of batches, TTL (s) of the
--       index, prefix of batches
-- Returns 1, or 0 if there are too many.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 1 -- the call is repeated because its reply was lost
end
if redis.call('ZINTERCARD', 2, KEYS[2], KEYS[3]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.6f', tonumber(ARGV[3]) - tonumber(ARGV[6])))
local excess = redis.call('ZCARD', KEYS[2]) + 1 - tonumber(ARGV[5])
for _, id in ipairs(excess > 0 and redis.call('ZRANGE', KEYS[2], 0, excess - 1) or {}) do
  if not redis.call('ZSCORE', KEYS[3], id) then
    redis.call('DEL', ARGV[7] .. id)
    redis.call('ZREM', KEYS[2], id)
  end
end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'revision', 0, 'epoch', 0)
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[6])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
return 1
