#!lua flags=allow-oom
-- Cancels jobs: ends waiting jobs, and notifies the workers of claimed ones. A job that is not known yet may still be
-- enqueued, because commands on different connections overtake each other. Its state is then marked, so that enqueue
-- leaves it out. The mark is the terminal event. A job that has ended, which has only a journal, stays as it is.
-- KEYS: queue
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix,
--       TTL (ms) of the mark of unknown jobs, the terminal event, ids...
-- Returns the ids of the claimed jobs.
local claimed = {}
for at = 7, #ARGV do
  local job, state = ARGV[at], ARGV[2] .. ARGV[at]
  local worker = redis.pcall('HGET', state, 'worker')
  if redis.call('ZREM', KEYS[1], job) == 1 then
    end_cancelled(job, ARGV[6], ARGV[1], ARGV[2], ARGV[3])
  elseif type(worker) == 'table' then
    forget(job, ARGV[1], ARGV[2], ARGV[3]) -- its state holds another type of value
  elseif worker then
    redis.call('HSET', state, 'cancelled', ARGV[6])
    claimed[#claimed + 1] = job
    redis.call('PUBLISH', ARGV[4] .. worker, 'cancel ' .. job)
  elseif redis.call('EXISTS', ARGV[3] .. job) == 0 then
    redis.call('HSET', state, 'cancelled', ARGV[6])
    redis.call('PEXPIRE', state, ARGV[5])
  end
end
return claimed
