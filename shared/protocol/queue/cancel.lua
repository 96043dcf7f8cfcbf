#!lua flags=allow-oom
-- Cancels jobs: ends waiting jobs, and notifies the workers of claimed ones. A job that is not known yet may still be
-- enqueued, because commands on different connections overtake each other. Its state is then marked, so that enqueue
-- leaves it out. The mark is the terminal event. A job that has ended, which has only a journal, stays as it is.
-- KEYS: see the prelude
-- ARGV: TTL (ms) of the mark of unknown jobs, the terminal event, ids...
-- Returns the ids of the claimed jobs.
local claimed = {}
for at = 3, #ARGV do
  local job, state = ARGV[at], STATE .. ARGV[at]
  local claim = redis.call('HGET', CLAIMS, job)
  if redis.call('ZREM', QUEUE, job) == 1 then
    end_with(job, ARGV[2])
  elseif claim then
    local attempt, worker = parse_claim(claim)
    redis.call('HSET', CLAIMS, job, CANCELLED .. claim_of(attempt, worker))
    redis.call('HSET', state, 'cancelled', ARGV[2])
    claimed[#claimed + 1] = job
    redis.call('PUBLISH', WORKER_CHANNEL .. worker, 'cancel ' .. job)
  elseif redis.call('EXISTS', JOURNAL .. job) == 0 then
    redis.call('HSET', state, 'cancelled', ARGV[2])
    redis.call('PEXPIRE', state, ARGV[1])
  end
end
return claimed
