#!lua
-- Claims unfinished batches that no replica feeds. Each claim has a new epoch, which fences off the replicas of earlier
-- claims.
-- KEYS: unfinished batches
-- ARGV: prefix of batches, lease (ms), maximum of batches to claim
-- Returns {id, epoch, revision, record, done, cancelling} for each claimed batch.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local lease = tonumber(ARGV[2])
-- A lease that ends too late was written before the store's clock was set back.
local late = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + lease), '+inf')
for _, id in ipairs(late) do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), id)
end
local reply = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[3])) do
  local key = ARGV[1] .. id
  local fields = redis.call('HMGET', key, 'revision', 'record', 'done', 'cancelling')
  if not fields[2] then
    redis.call('ZREM', KEYS[1], id) -- expired
  else
    local epoch = redis.call('HINCRBY', key, 'epoch', 1)
    redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), id)
    reply[#reply + 1] = {id, epoch, tonumber(fields[1]), fields[2], fields[3] or '', fields[4] or ''}
  end
end
return reply
