#!lua flags=allow-oom
-- Ends a response, unless it has ended already or was deleted: stores its document. The journal of a background
-- response, from which streams are resumed, is kept as a copy, to which nothing is appended.
-- KEYS: see the prelude
-- ARGV: see the prelude, then the document, whether it is a background response (0/1), and the journal of such a one
-- Returns 1, or 0 if the response was not running.
if redis.call('EXISTS', KEYS[6]) == 0 then
  return 0
end
local found = redis.call('HGET', KEYS[6], 'document')
if found then
  return found == ARGV[OWN] and 1 or 0 -- 1: the command was repeated
end
delete_expired()
local kept, keeps = KEPT .. owner .. ':' .. id, ARGV[OWN + 1] == '1'
local bytes = bytes_of(id) + #'document' + #ARGV[OWN] - tonumber(redis.call('HGET', KEYS[6], 'counted') or 0)
for at = OWN + 2, #ARGV, 1000 do
  redis.call('RPUSH', kept, unpack(ARGV, at, math.min(at + 999, #ARGV)))
end
redis.call('PEXPIRE', kept, ttl)
for at = OWN + 2, #ARGV do
  bytes = bytes + #ARGV[at]
end
local fields = {'counted', 'jobs', not keeps and 'request' or nil}
for at = 2, #fields do
  bytes = bytes - #fields[at] - redis.call('HSTRLEN', KEYS[6], fields[at])
end
for job in jobs_of(KEYS[6]) do
  fields[#fields + 1] = 'counted:' .. job
end
redis.call('HDEL', KEYS[6], unpack(fields))
redis.call('HSET', KEYS[6], 'document', ARGV[OWN])
redis.call('PEXPIRE', KEYS[6], ttl)
redis.call('ZREM', KEYS[5], id)
redis.call('ZADD', KEYS[4], seconds, id)
redis.call('ZADD', KEYS[3], now + ttl, id)
redis.call('PEXPIRE', KEYS[4], running_ttl + ttl)
count(owner, id, math.max(1, bytes))
make_room(0, 0)
return 1
