#!lua flags=allow-oom
-- Advertises a process until its lease ends, and the model that a worker serves for good. May run while the store is at
-- its memory limit: nobody is gone because there is no room.
-- KEYS: advertisement, index of the living, models
-- ARGV: id, advertisement, lease (ms), end of the lease (Unix seconds), end of the leases of those that are forgotten,
--       then for a worker that serves: model, its facts
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[5])
if ARGV[6] then
  redis.call('HSET', KEYS[3], ARGV[6], ARGV[7])
end
