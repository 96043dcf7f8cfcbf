#!lua
-- Stores a completion, indexed by the store's time, and removes its pending completion.
-- KEYS: completion, index of the owner's completions, outbox
-- ARGV: id, TTL (ms), maximum of completions per owner, maximum of their bytes, prefix of the keys of the owner's
--       completions, field of the pending completion ('' for none), prefix of the keys of the owner's kept journals
--       ('' for none), then fields and values of the completion
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local ttl = tonumber(ARGV[2])
local max_count = tonumber(ARGV[3])
local max_bytes = tonumber(ARGV[4])

local function delete(id)
  redis.call('DEL', ARGV[5] .. id)
  if ARGV[7] ~= '' then
    redis.call('DEL', ARGV[7] .. id)
  end
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.6f', now - ttl / 1000))
redis.call('HSET', KEYS[1], unpack(ARGV, 8))
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('ZADD', KEYS[2], string.format('%.6f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ttl)
if ARGV[6] ~= '' then
  redis.call('HDEL', KEYS[3], ARGV[6])
end
for at = 1, redis.call('ZCARD', KEYS[2]) - max_count do
  delete(redis.call('ZPOPMIN', KEYS[2])[1])
end

local size = 0
for at = 9, #ARGV, 2 do
  size = size + #ARGV[at]
end
-- Smaller ones alone can't exceed the maximum. So they need no count, and all have at most twice the maximum together.
if size > max_bytes / max_count then
  local total = 0
  for _, id in ipairs(redis.call('ZREVRANGE', KEYS[2], 0, -1)) do
    for _, field in ipairs({'document', 'input', 'messages'}) do
      local length = redis.pcall('HSTRLEN', ARGV[5] .. id, field)  -- an error if the key is damaged
      total = total + (type(length) == 'number' and length or 0)
    end
    if total > max_bytes and id ~= ARGV[1] then
      redis.call('ZREM', KEYS[2], id)
      delete(id)
    end
  end
end
