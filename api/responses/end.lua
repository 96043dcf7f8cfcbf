#!lua flags=allow-oom
-- Ends a background response, unless it has ended already or was deleted: stores its document, and keeps the journal of
-- its job, from which streams are resumed. Removes its pending completion in any case.
-- KEYS: response, journal, kept journal, outbox
-- ARGV: document, TTL (ms), field of the pending completion ('' for none)
-- Returns 1, or 0 if the response was not running.
if ARGV[3] ~= '' then
  redis.call('HDEL', KEYS[4], ARGV[3])
end
if redis.call('HDEL', KEYS[1], 'job') == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'document', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('RENAME', KEYS[2], KEYS[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
return 1
