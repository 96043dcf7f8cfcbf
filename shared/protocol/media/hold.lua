#!lua
-- Stores the files of a request that the store doesn't have, and holds all of them; or none, beyond the limit.
-- KEYS: media-holds, media-sizes
-- ARGV: prefix of files, TTL (ms), limit (bytes), the request, then for each file its digest and bytes
-- Returns 1, or 0 if the files exceed the limit.
drop_expired()

local new = 0
for at = 5, #ARGV, 2 do
  if redis.call('EXISTS', ARGV[1] .. ARGV[at]) == 0 then
    new = new + #ARGV[at + 1]
  end
end
if new > 0 and (tonumber(redis.call('HGET', KEYS[2], 'total')) or 0) + new > tonumber(ARGV[3]) then
  return 0
end

for at = 5, #ARGV, 2 do
  local digest, file = ARGV[at], ARGV[at + 1]
  if redis.call('EXISTS', ARGV[1] .. digest) == 0 then
    forget(digest)
    redis.call('SET', ARGV[1] .. digest, file)
    redis.call('HSET', KEYS[2], digest .. ' bytes', #file)
    redis.call('HINCRBY', KEYS[2], 'total', #file)
  end
  -- Longer than the hold, so that only scripts delete files, and a store without traffic still becomes empty.
  redis.call('PEXPIRE', ARGV[1] .. digest, 2 * ARGV[2])
  if redis.call('ZADD', KEYS[1], now + ARGV[2], digest .. ' ' .. ARGV[4]) == 1 then
    redis.call('HINCRBY', KEYS[2], digest .. ' holds', 1)
  end
end
redis.call('PEXPIRE', KEYS[1], 2 * ARGV[2])
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[2])
return 1
