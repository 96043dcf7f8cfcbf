-- Shared functions, prepended to each script when it is loaded.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Maximum number of expired holds that are dropped per call.
local MOST_DROPPED = 256

-- Forgets a file that is not stored any more.
local function forget(digest)
  local size = tonumber(redis.call('HGET', KEYS[2], digest .. ' bytes')) or 0
  redis.call('HDEL', KEYS[2], digest .. ' bytes', digest .. ' holds')
  if redis.call('HINCRBY', KEYS[2], 'total', -size) <= 0 then
    redis.call('HDEL', KEYS[2], 'total')
  end
end

-- Drops one hold, and its file with the last one.
local function drop(hold)
  if redis.call('ZREM', KEYS[1], hold) == 1 then
    local digest = string.match(hold, '^%S+')
    if redis.call('HINCRBY', KEYS[2], digest .. ' holds', -1) <= 0 then
      redis.call('DEL', ARGV[1] .. digest)
      forget(digest)
    end
  end
end

local function drop_expired()
  for _, hold in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, MOST_DROPPED)) do
    drop(hold)
  end
end

