#!lua flags=allow-oom
-- Moves the payload of a claimed job that its worker can't read to the dead letters, and ends the job for its client.
-- Does nothing if the worker no longer holds the lease.
-- KEYS: see the prelude, dead letters
-- ARGV: id, attempt, worker, terminal event, maximum of dead letters, channel of the job's replica ('' if unknown), frame
local job = ARGV[1]
if not is_held(redis.call('HGET', CLAIMS, job), claim_of(ARGV[2], ARGV[3])) then
  return
end
redis.call('LPUSH', KEYS[9], redis.call('GET', PAYLOAD .. job) or '')
redis.call('LTRIM', KEYS[9], 0, ARGV[5] - 1)
end_with(job, ARGV[4], 1)
if ARGV[6] ~= '' then
  redis.call('PUBLISH', ARGV[6], ARGV[7])
end
