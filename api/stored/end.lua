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
local journalled = math.max(0, bytes_of(id) + read_journals(KEYS[6]) - bytes_in(KEYS[6]))
for job in jobs_of(KEYS[6]) do
  redis.call('DEL', NEEDED .. job)
  redis.call('HDEL', KEYS[6], 'counted:' .. job)
  if keeps and redis.call('EXISTS', JOURNALS .. job) == 1 then
    redis.call('RENAME', JOURNALS .. job, kept)
    redis.call('PEXPIRE', kept, ttl)
  else
    redis.call('DEL', JOURNALS .. job)
  end
end
redis.call('HSET', KEYS[6], 'document', ARGV[OWN])
redis.call('HDEL', KEYS[6], 'jobs')
if not keeps then
  redis.call('HDEL', KEYS[6], 'request')
end
redis.call('PEXPIRE', KEYS[6], ttl)
count(owner, id, bytes_in(KEYS[6]) + (keeps and journalled or 0))
redis.call('ZREM', KEYS[5], id)
redis.call('ZADD', KEYS[4], seconds, id)
redis.call('ZADD', KEYS[3], now + ttl, id)
keep_bookkeeping()
make_room(0, 0)
return 1
