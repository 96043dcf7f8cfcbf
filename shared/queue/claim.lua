-- Moves waiting jobs to the in-flight set for one worker: at most its free slots, and at most its
-- share of the queue while other workers have free slots too.
-- KEYS: queue, inflight, load, shares
-- ARGV: payload prefix, state prefix, journal prefix, worker, slots used, slots, lease (ms), state TTL (ms)
-- Returns the number of jobs that still wait, then {id, attempt, crashes, lapses, payload, journal} for each
-- claimed one.
local used, slots = tonumber(ARGV[5]), tonumber(ARGV[6])
local waiting = redis.call('ZCARD', KEYS[1])
local claimed = {}
local left = waiting
if waiting > 0 and used < slots then
  local others = redis.call('ZCOUNT', KEYS[3], '-inf', '(1')
  local own = redis.call('ZSCORE', KEYS[3], ARGV[4])
  if own and tonumber(own) < 1 then
    others = others - 1
  end
  local take = math.min(slots - used, math.ceil(waiting / (others + 1)))
  local lease_end = now_ms() + tonumber(ARGV[7])
  local popped = redis.call('ZPOPMIN', KEYS[1], take)
  left = waiting - #popped / 2
  advance(KEYS[4], popped)
  for at = 1, #popped, 2 do
    local job, score = popped[at], popped[at + 1]
    local payload = redis.call('GET', ARGV[1] .. job)
    if payload then
      local state = ARGV[2] .. job
      local attempt = redis.call('HINCRBY', state, 'attempt', 1)
      redis.call('HSET', state, 'worker', ARGV[4], 'score', score)
      redis.call('PEXPIRE', state, ARGV[8])
      redis.call('ZADD', KEYS[2], string.format('%.0f', lease_end), job)
      local journal = {}
      if attempt > 1 then
        journal = redis.call('LRANGE', ARGV[3] .. job, 0, -1)
      end
      local past = redis.call('HMGET', state, 'crashes', 'lapses')
      claimed[#claimed + 1] = {job, attempt, tonumber(past[1] or 0), tonumber(past[2] or 0), payload, journal}
    else
      forget(job, ARGV[1], ARGV[2], ARGV[3])
    end
  end
end
redis.call('ZADD', KEYS[3], (used + #claimed) / slots, ARGV[4])
return {left, unpack(claimed)}
