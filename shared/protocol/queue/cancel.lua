#!lua flags=allow-oom
-- Ends jobs whose client has gone: taken out of the queue, or their worker told. A job that is not there yet may be on
-- its way still, as commands on other connections overtake each other; it is then not queued when it comes.
-- KEYS: queue
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, time (ms) for which to expect a late job, ids...
-- Returns the ids of the jobs that workers have.
local claimed = {}
for at = 6, #ARGV do
  local job = ARGV[at]
  if redis.call('ZREM', KEYS[1], job) == 1 then
    forget(job, ARGV[1], ARGV[2], ARGV[3])
  else
    local state = ARGV[2] .. job
    local marked = redis.pcall('HSET', state, 'cancelled', 1)
    local worker = redis.pcall('HGET', state, 'worker')
    if type(marked) == 'table' then
      forget(job, ARGV[1], ARGV[2], ARGV[3]) -- its state can't be read
    elseif worker then
      claimed[#claimed + 1] = job
      redis.call('PUBLISH', ARGV[4] .. worker, 'cancel ' .. job)
    else
      redis.call('PEXPIRE', state, ARGV[5])
    end
  end
end
return claimed
