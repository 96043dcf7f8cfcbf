#!lua
-- Sets the metadata of a response.
-- KEYS: see the prelude
-- ARGV: see the prelude, then the metadata
-- Returns 1, or 0 if there is no such response.
local before = redis.call('HGET', KEYS[6], 'metadata')
if not before then
  return 0
end
redis.call('HSET', KEYS[6], 'metadata', ARGV[OWN])
count(owner, id, bytes_of(id) + #ARGV[OWN] - #before)
return 1
