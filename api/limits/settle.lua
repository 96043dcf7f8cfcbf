#!lua flags=allow-oom
-- Settles a reservation of an owner: corrects its estimated tokens and frees its place, or undoes it. Does nothing where
-- the reservation is not there: it was settled already (the call is repeated because its reply was lost), or has expired.
-- KEYS: buckets, admitted
-- ARGV: tokens used beyond the estimate (negative if fewer), requests beyond the one of the reservation (-1: it is undone),
--       reservation ("TOKENS NAME REPLICA"), tokens per minute, requests per minute (each '' if unlimited)

-- Maximum debt of a bucket (ms), as in reserve.lua.
local LONGEST_DEBT = 86400000

local BUCKETS, RESERVATION = KEYS[1], ARGV[3]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000

if redis.call('ZREM', KEYS[2], RESERVATION) == 0 then
  return
end
if redis.call('HEXISTS', BUCKETS, 'reserved') == 1 then
  redis.call('HINCRBY', BUCKETS, 'reserved', -(tonumber(string.match(RESERVATION, '^(%d+) ')) or 0))
end
for at, bucket in ipairs({'tokens', 'requests'}) do
  local per_minute = ARGV[3 + at]
  local full = ARGV[at] ~= '0' and per_minute ~= '' and tonumber(redis.call('HGET', BUCKETS, bucket))
  if full then
    local corrected = math.min(full + tonumber(ARGV[at]) * 60000 / tonumber(per_minute), now + LONGEST_DEBT)
    redis.call('HSET', BUCKETS, bucket, string.format('%.3f', corrected))
    local remaining = math.ceil(corrected - now)
    if remaining > redis.call('PTTL', BUCKETS) then
      redis.call('PEXPIRE', BUCKETS, remaining + 1000)
    end
  end
end
