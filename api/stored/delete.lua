#!lua flags=allow-oom
-- Deletes a response.
-- KEYS, ARGV: see the prelude
-- Returns 1.
delete(owner, id)
return 1
