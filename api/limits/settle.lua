#!lua flags=allow-oom
-- Settles a reservation: corrects its estimated tokens and frees its concurrency place. Does nothing if the reservation
-- is not there: it was settled already (the call is repeated because its reply was lost), or has expired.
-- KEYS: buckets, admitted
-- ARGV: tokens per minute ('' if unlimited), tokens used beyond the estimate (negative if fewer), reservation
if redis.call('ZREM', KEYS[2], ARGV[3]) == 0 then
  return
end
local full = ARGV[1] ~= '' and tonumber(redis.call('HGET', KEYS[1], 'tokens'))
if full then
  local corrected = full + tonumber(ARGV[2]) * 60000 / tonumber(ARGV[1])
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.3f', corrected))
  local time = redis.call('TIME')
  local remaining = math.ceil(corrected - tonumber(time[1]) * 1000)
  if remaining > redis.call('PTTL', KEYS[1]) then
    redis.call('PEXPIRE', KEYS[1], remaining + 1000)
  end
end
