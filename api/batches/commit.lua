#!lua
-- Writes the record of a batch and renews its lease, if the replica's claim is still the newest. Without a record, the
-- lease is only renewed.
-- KEYS: batch, unfinished batches
-- ARGV: id, epoch, revision on which the record is based, record ('' for none), requests that are done ('' if unchanged),
--       lease (ms), TTL (ms) of a batch that has ended ('' if it has not)
-- Returns {1, the time at which cancellation was asked for, or ''}; {0} if the claim is not the newest, or the store has
-- lost records that were written under it.
local fields = redis.call('HMGET', KEYS[1], 'epoch', 'revision', 'cancelling')
local revision = tonumber(fields[2])
-- The next revision means that this call is repeated because its reply got lost.
if fields[1] ~= ARGV[2] or not revision or (revision ~= tonumber(ARGV[3]) and revision ~= tonumber(ARGV[3]) + 1) then
  return {0}
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'record', ARGV[4], 'revision', tonumber(ARGV[3]) + 1)
  if ARGV[5] ~= '' then
    redis.call('HSET', KEYS[1], 'done', ARGV[5])
  end
end
if ARGV[7] ~= '' then
  redis.call('HDEL', KEYS[1], 'done')
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  redis.call('ZREM', KEYS[2], ARGV[1])
else
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  -- XX: a batch that has ended, so that it is no longer listed, stays so.
  redis.call('ZADD', KEYS[2], 'XX', string.format('%.0f', now + tonumber(ARGV[6])), ARGV[1])
end
return {1, fields[3] or ''}
