#!lua flags=allow-oom
-- Ends a response, unless it has ended already or was deleted: stores its document. The journal of a background
-- response, from which streams are resumed, is kept under another name, so that nothing is appended to it.
-- KEYS: see the prelude
-- ARGV: see the prelude, then the document, and whether the journal is kept (0/1)
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
local bytes = bytes_of(id) + #'document' + #ARGV[OWN]
if keeps then
  bytes = bytes + read_journals(KEYS[6])
else
  bytes = bytes - tonumber(redis.call('HGET', KEYS[6], 'counted') or 0)
end
local surplus, fields = {}, {'counted', 'jobs', not keeps and 'request' or nil}
for at = 2, #fields do
  bytes = bytes - #fields[at] - redis.call('HSTRLEN', KEYS[6], fields[at])
end
for job in jobs_of(KEYS[6]) do
  fields[#fields + 1] = 'counted:' .. job
  surplus[#surplus + 1] = NEEDED .. job
  if not keeps then
    surplus[#surplus + 1] = JOURNALS .. job
  elseif redis.call('EXISTS', JOURNALS .. job) == 1 then
    redis.call('RENAME', JOURNALS .. job, kept)
    redis.call('PEXPIRE', kept, ttl)
  end
end
if #surplus > 0 then
  redis.call('DEL', unpack(surplus))
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
