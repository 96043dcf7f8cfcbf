#!lua flags=allow-oom
-- Moves the concurrency place of a request to the replica that finishes it, so that it keeps counting.
-- KEYS: admitted
-- ARGV: the reservation, the reservation of the other replica, maximum duration of a request (ms)
local time = redis.call('TIME')
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], tonumber(time[1]) * 1000 + tonumber(ARGV[3]), ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
