#!lua
-- Adds a batch, unless its owner has too many unfinished ones.
-- KEYS: batch, index of the owner's batches, unfinished batches
-- ARGV: id, record, time of creation (Unix seconds), maximum of unfinished batches, TTL (ms) of the index,
--       prefix of batches
-- Returns 1, or 0 if there are too many.
local unfinished = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', ARGV[6] .. id) == 0 then
    redis.call('ZREM', KEYS[2], id) -- expired
  elseif redis.call('ZSCORE', KEYS[3], id) then
    unfinished = unfinished + 1
  end
end
if unfinished >= tonumber(ARGV[4]) then
  return 0
end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'revision', 0, 'epoch', 0)
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
return 1
