#!lua
-- Adds the record of a file, unless its owner has too many. Without a record, only checks whether it could be added.
-- KEYS: record, index of the owner's files
-- ARGV: id, record ('' for none), TTL (ms), time of creation (Unix seconds), maximum number of files, prefix of records
-- Returns 1, or 0 if there are too many files. A file that has a record already is not refused: the call is repeated
-- because its reply was lost.
if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if redis.call('EXISTS', ARGV[6] .. id) == 0 then
      redis.call('ZREM', KEYS[2], id) -- expired
    end
  end
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
    return 0
  end
end
if ARGV[2] == '' then
  return 1
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 1
