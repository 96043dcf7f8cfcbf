#!lua
-- Stores a completion, indexed by the store's time, and removes its pending completion.
-- KEYS: completion, index of the owner's completions, outbox
-- ARGV: id, TTL (ms), maximum of completions per owner, prefix of the keys of the owner's completions,
--       field of the pending completion ('' for none), prefix of the keys of the owner's kept journals ('' for none),
--       then fields and values of the completion
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local ttl = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.6f', now - ttl / 1000))
redis.call('HSET', KEYS[1], unpack(ARGV, 7))
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('ZADD', KEYS[2], string.format('%.6f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ttl)
if ARGV[5] ~= '' then
  redis.call('HDEL', KEYS[3], ARGV[5])
end
local excess = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[3])
for at = 1, excess do
  local oldest = redis.call('ZPOPMIN', KEYS[2])[1]
  redis.call('DEL', ARGV[4] .. oldest)
  if ARGV[6] ~= '' then
    redis.call('DEL', ARGV[6] .. oldest)
  end
end
