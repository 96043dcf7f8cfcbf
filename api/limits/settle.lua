#!lua flags=allow-oom
-- Settles a reservation: corrects its estimated tokens and frees its places. Does nothing where the reservation
-- is not there: it was settled already (the call is repeated because its reply was lost), or has expired.
-- KEYS: buckets and admitted of the API key, and of its team if it has one
-- ARGV: tokens used beyond the estimate (negative if fewer), reservation ("TOKENS NAME REPLICA"), tokens per minute ('' if unlimited) of each

-- Maximum debt of a bucket (ms), as in reserve.lua.
local LONGEST_DEBT = 86400000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000

local function settle(buckets, admitted, tokens_per_minute)
  if redis.call('ZREM', admitted, ARGV[2]) == 0 then
    return
  end
  if redis.call('HEXISTS', buckets, 'reserved') == 1 then
    redis.call('HINCRBY', buckets, 'reserved', -(tonumber(string.match(ARGV[2], '^(%d+) ')) or 0))
  end
  local full = tokens_per_minute ~= '' and tonumber(redis.call('HGET', buckets, 'tokens'))
  if full then
    local corrected = math.min(full + tonumber(ARGV[1]) * 60000 / tonumber(tokens_per_minute), now + LONGEST_DEBT)
    redis.call('HSET', buckets, 'tokens', string.format('%.3f', corrected))
    local remaining = math.ceil(corrected - now)
    if remaining > redis.call('PTTL', buckets) then
      redis.call('PEXPIRE', buckets, remaining + 1000)
    end
  end
end

for at = 1, #KEYS, 2 do
  settle(KEYS[at], KEYS[at + 1], ARGV[2 + (at + 1) / 2])
end
