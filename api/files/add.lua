#!lua
-- Adds the record of a file, unless its owner has too many or too large ones. Without a record, only checks whether it
-- could be added.
-- KEYS: record, index of the owner's files, their sizes (hash: id -> bytes, and '' -> the sum)
-- ARGV: id, record ('' for none), TTL (ms), time of creation (Unix seconds), maximum number of files, prefix of records,
-- size, maximum size of all files (bytes)
-- Returns 1, or 0 if there are too many files, or -1 if they are too large. A file that has a record already is not
-- refused: the call is repeated because its reply was lost.
-- The sum includes files that were deleted or have expired, until it would refuse one.
local known = redis.call('EXISTS', KEYS[1]) == 1
local size = tonumber(ARGV[7])
local function sum_of_sizes()
  return tonumber(redis.call('HGET', KEYS[3], '') or 0) or 0
end
local function fault()
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
    return 0
  end
  if sum_of_sizes() + size > tonumber(ARGV[8]) then
    return -1
  end
end
if not known and fault() then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('EXISTS', ARGV[6] .. id) == 0 then
      redis.call('ZREM', KEYS[2], id)
    end
  end
  local sum, entries = 0, redis.call('HGETALL', KEYS[3])
  for i = 1, #entries, 2 do
    if entries[i] ~= '' then
      if redis.call('EXISTS', ARGV[6] .. entries[i]) == 0 then
        redis.call('HDEL', KEYS[3], entries[i])
      else
        sum = sum + (tonumber(entries[i + 1]) or 0)
      end
    end
  end
  if #entries > 0 then
    redis.call('HSET', KEYS[3], '', string.format('%.0f', sum))
  end
  local found = fault()
  if found then
    return found
  end
end
if ARGV[2] == '' then
  return 1
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
if redis.call('HSETNX', KEYS[3], ARGV[1], ARGV[7]) == 1 then
  redis.call('HSET', KEYS[3], '', string.format('%.0f', sum_of_sizes() + size))
end
for i = 2, 3 do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
  end
end
return 1
