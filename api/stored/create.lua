#!lua
-- Stores the record of an accepted request, whose response has no document yet.
-- KEYS: see the prelude
-- ARGV: see the prelude, then fields and values of the record
-- Returns 1, 0 if responses that run leave no room, or -1 if the record alone is too large.
if redis.call('EXISTS', KEYS[6]) == 1 then
  return 1 -- the command was repeated
end
delete_expired()
count_running()
local bytes = 0
for at = OWN, #ARGV do
  bytes = bytes + #ARGV[at]
end
if bytes > math.min(max_bytes, max_total) then
  return -1
end
if not fits(1, bytes) then
  -- Checked first, so that a refused request evicts nothing.
  local running = bytes
  for _, response in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    running = running + bytes_of(response)
  end
  if running > max_bytes or redis.call('ZCARD', KEYS[5]) >= max_count then
    return 0
  end
end
if not make_room(1, bytes) then
  return 0
end
redis.call('HSET', KEYS[6], unpack(ARGV, OWN))
redis.call('PEXPIRE', KEYS[6], running_ttl)
redis.call('ZADD', KEYS[5], seconds, id)
redis.call('ZADD', KEYS[3], now + running_ttl, id)
count(owner, id, bytes)
for job in jobs_of(KEYS[6]) do
  redis.call('SET', NEEDED .. job, '', 'PX', running_ttl)
end
-- The bookkeeping outlives all that it counts: a document may be added, and expires a TTL later.
for key = 1, 5 do
  redis.call('PEXPIRE', KEYS[key], running_ttl + ttl)
end
return 1
