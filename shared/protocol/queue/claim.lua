#!lua flags=allow-oom
-- Claims waiting jobs for one worker: at most its free slots, and at most an equal share of the queue while other
-- workers have free slots.
-- Jobs reserved for other workers (see enqueue.lua) are skipped until the reservation ends; the worker must then claim
-- again. Lines of batches, whose scores are above 0, are claimed after all other jobs and leave some slots free.
-- When a worker is full, the jobs reserved for it are freed and other workers are woken.
-- A repeated call is another claim: the jobs of a claim whose reply was lost are returned to the queue when their leases
-- end, because the worker does not renew them.
-- KEYS: see the prelude, fair_queue, reserved
-- ARGV: worker, slots used, slots, lease (ms), duration (ms) of a reservation, slots to leave free of lines of batches
-- A job whose records are unreadable is deleted; its API replica notices the missing payload.
-- Returns the number of jobs still waiting, without lines of batches if no more of them may be claimed, then
-- {id, attempt, crashes, lost_workers, payload, journal, cause} for each claimed one.

local MAX_ATTEMPTS = 1000000
local FAIR_QUEUE, RESERVED = KEYS[6], KEYS[7]
local WORKER = ARGV[1]

-- Returns the worker of each reserved job, and how many jobs are reserved for this worker and for others.
local function read_reserved()
  local reserved, ours, others = {}, 0, 0
  if redis.call('EXISTS', RESERVED) == 1 then
    local now = now_ms()
    redis.call('ZREMRANGEBYSCORE', RESERVED, '-inf', string.format('%.0f', now))
    -- A reservation that ends too late was written before the store's clock was set back.
    redis.call('ZREMRANGEBYSCORE', RESERVED, string.format('(%.0f', now + tonumber(ARGV[5])), '+inf')
    for _, entry in ipairs(redis.call('ZRANGE', RESERVED, 0, -1)) do
      local job, worker = string.match(entry, '^(%S+) (.*)$')
      if not job then
        redis.call('ZREM', RESERVED, entry) -- not written by Vinoqueue
      elseif worker == WORKER then
        reserved[job], ours = worker, ours + 1
      else
        reserved[job], others = worker, others + 1
      end
    end
  end
  return reserved, ours, others
end

-- Removes up to `take` jobs from the front of the queue, at most `most_lines` of them lines of batches, except those
-- reserved for others. Returns alternating ids and scores.
local function pop(take, most_lines, reserved, for_others)
  if for_others == 0 then
    return redis.call('ZPOPMIN', QUEUE, take)
  end
  local lines = 0
  local front = redis.call('ZRANGE', QUEUE, 0, take + for_others - 1, 'WITHSCORES')
  local popped, ids = {}, {}
  for at = 1, #front, 2 do
    local line = tonumber(front[at + 1]) > 0
    if #ids < take and (reserved[front[at]] or WORKER) == WORKER and not (line and lines >= most_lines) then
      lines = lines + (line and 1 or 0)
      ids[#ids + 1] = front[at]
      popped[#popped + 1], popped[#popped + 2] = front[at], front[at + 1]
    end
  end
  call_with('ZREM', QUEUE, ids, 1, #ids)
  return popped
end

-- Returns a count from a job's state. Raises an error when it is invalid.
local function number_of(stored)
  local number = tonumber(stored or 0)
  if not (number and number >= 0 and number <= MAX_ATTEMPTS) then
    error('no count')
  end
  return number
end

-- Claims a job that was removed from the queue. Returns its row of the reply, or nil when its payload is missing.
-- Raises an error when its records are unreadable.
local function claim(job, score, lease_end)
  local payload = redis.call('GET', PAYLOAD .. job)
  if not payload then
    return nil
  end
  local state = STATE .. job
  local attempt = redis.call('HINCRBY', state, 'attempt', 1)
  if attempt < 1 then
    error('no attempt')
  end
  redis.call('HSET', state, 'score', score)
  redis.call('PEXPIRE', state, JOB_TTL)
  redis.call('HSET', CLAIMS, job, claim_of(attempt, WORKER))
  redis.call('PEXPIRE', CLAIMS, JOB_TTL)
  redis.call('ZADD', INFLIGHT, lease_end, job)
  local journal = {}
  if attempt > 1 then
    journal = redis.call('LRANGE', JOURNAL .. job, 0, -1)
  end
  local past = redis.call('HMGET', state, 'crashes', 'lost_workers', 'cause')
  return {job, number_of(attempt), number_of(past[1]), number_of(past[2]), payload, journal, past[3] or ''}
end

local used, slots = tonumber(ARGV[2]), tonumber(ARGV[3])
local waiting = redis.call('ZCARD', QUEUE)
local reply = {waiting}
local reserved, for_us, for_others = {}, 0, 0
if waiting > 0 then
  reserved, for_us, for_others = read_reserved()
end
if waiting > 0 and used < slots then
  redis.call('ZCARD', INFLIGHT) -- fails before any job is removed if the key holds another type of value
  local others = redis.call('ZCOUNT', LOAD, '-inf', '(1')
  local own = redis.call('ZSCORE', LOAD, WORKER)
  if own and tonumber(own) < 1 then
    others = others - 1
  end
  local share = math.ceil(math.max(1, waiting - for_others) / (others + 1))
  local take = math.min(slots - used, math.max(share, for_us))
  local lines = redis.call('ZCOUNT', QUEUE, '(0', '+inf')
  local others_first = math.min(take, waiting - lines)
  local most_lines = math.max(0, slots - tonumber(ARGV[6]) - used - others_first)
  take = others_first + math.min(take - others_first, most_lines)
  local lease_end = string.format('%.0f', now_ms() + tonumber(ARGV[4]))
  local popped = pop(take, most_lines, reserved, for_others)
  reply[1] = waiting - #popped / 2
  if used + #popped / 2 >= slots - tonumber(ARGV[6]) then
    reply[1] = reply[1] - redis.call('ZCOUNT', QUEUE, '(0', '+inf')
  end
  advance(FAIR_QUEUE, popped)
  for at = 1, #popped, 2 do
    local job, score = popped[at], popped[at + 1]
    if reserved[job] then
      redis.call('ZREM', RESERVED, job .. ' ' .. WORKER)
      reserved[job] = nil
    end
    local claimed, row = pcall(claim, job, score, lease_end)
    if claimed and row then
      reply[#reply + 1] = row
    else
      forget(job)
    end
  end
end
used = used + #reply - 1
redis.call('ZADD', LOAD, used / slots, WORKER)
if for_us > 0 and used >= slots then
  for job, worker in pairs(reserved) do
    if worker == WORKER then
      redis.call('ZREM', RESERVED, job .. ' ' .. worker)
      wake()
    end
  end
end
return reply
