#!lua flags=allow-oom
-- Claims waiting jobs for one worker: at most its free slots, and at most an equal share of the queue while other
-- workers have free slots.
-- A tenant keeps at most half of the worker's slots, or its share beside others that keep some, with jobs that can't be
-- returned to the queue (see keeper_of() in the prelude), if another tenant has sent a request lately. Its next ones wait.
-- On a worker that serves vectors, texts to index leave some slots free for queries instead.
-- Jobs reserved for other workers (see enqueue.lua) are skipped until the reservation ends; the worker must then claim
-- again. Batch requests are claimed after all other jobs and leave some slots free.
-- When a worker is full, the jobs reserved for it are freed and other workers are woken.
-- A repeated call is another claim: the jobs of a claim whose reply was lost are returned to the queue when their leases
-- end, because the worker does not renew them.
-- A job with tokens of another vocabulary or chat template waits while a worker that has it serves the model. When there
-- is none, the job is claimed nevertheless, so that it ends: the worker cannot continue it.
-- KEYS: see the prelude, reserved, moves
-- ARGV: worker, slots used, slots, lease (ms), duration (ms) of a reservation, slots to leave free of batch requests,
--       slots to leave free for queries (0 where jobs generate), digest of the worker's vocabulary and chat template, the tenant of each slot that is kept...
-- A job whose payload has expired is deleted; its API replica notices that.
-- Returns the number of jobs still waiting that may be claimed, then {id, attempt, crashes, lost_workers, payload,
-- journal, cause, foreign, keeper} for each claimed one; foreign is 1 when its tokens are of another vocabulary or chat
-- template, else 0; keeper is the tenant if the job keeps its slot ('-' for texts to index),
-- else ''.

local RESERVED, MOVES = KEYS[9], KEYS[10]
local WORKER, SLOTS, BATCH_RESERVE, VOCABULARY = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6]), ARGV[8]
local QUERY_RESERVE = tonumber(ARGV[7])

-- For how long (s) after its last request a tenant finds slots that others do not keep.
local LATELY = 60

-- How many jobs are looked at at a time, and how many that may not be claimed are passed over.
local PAGE = 100

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
      if worker == WORKER then
        reserved[job], ours = worker, ours + 1
      else
        reserved[job], others = worker, others + 1
      end
    end
  end
  return reserved, ours, others
end

-- Returns the number of batch requests that wait. Their scores are the highest.
local function batch_requests()
  return redis.call('ZCOUNT', QUEUE, string.format('(%.0f', BATCH_CLASS * CLASS_WIDTH), '+inf')
end

local kept, keepers = read_kept(9, #ARGV), {} -- what each tenant keeps, and the keepers of jobs
local others_of = {} -- by tenant

-- Returns whether another tenant has sent a request lately (see enqueue.lua). Not if the clock was set back.
local function has_others(tenant)
  if others_of[tenant] == nil then
    local stored = redis.call('HGET', FAIR_QUEUE, 'newest') or ' 0 0'
    local newest, time, before = string.match(stored, '^(%S*) (%d+) (%d+)$')
    others_of[tenant] = math.abs(redis.call('TIME')[1] - (newest == tenant and before or time)) < LATELY
  end
  return others_of[tenant]
end

-- Returns whether a job that keeps its slot may have one now, and notes who keeps it.
local function may_enter(job, entry)
  if QUERY_RESERVE > 0 then
    if kept[1] >= SLOTS - QUERY_RESERVE then
      return false
    end
    kept[1], keepers[job] = kept[1] + 1, '-'
    return true
  end
  local tenant, allowed = keeper_of(entry, kept, SLOTS)
  if not allowed and has_others(tenant) then
    return false
  elseif tenant ~= '' then
    redis.call('HSET', SIZES, 'job:' .. job, (string.gsub(entry, '%d$', '%0 kept')))
    kept[tenant], kept[1], keepers[job] = (kept[tenant] or 0) + 1, kept[1] + 1, tenant
  end
  return true
end

-- Removes up to `take` jobs from the front of the queue, except those reserved for others, those that may not have a slot
-- now, and batch requests that must leave slots free. Returns alternating ids and scores, and how many may not have one.
-- Behind many of these, it looks at those from the virtual time on: no new job has an older tag. While it finds none, it
-- goes on: one that costs more than a page of others is behind them.
local function pop(take, used, reserved, for_others)
  local popped, ids, refused, last, ends = {}, {}, 0, nil, false

  local function look(front)
    local scores, fields, entries = {}, {}, {}
    for at = 1, #front, 2 do
      scores[at] = tonumber(front[at + 1])
      if QUERY_RESERVE == 0 and keeps_slot(scores[at]) then
        fields[#fields + 1] = 'job:' .. front[at]
      end
    end
    for at, entry in ipairs(#fields > 0 and redis.call('HMGET', SIZES, unpack(fields)) or {}) do
      entries[fields[at]] = entry
    end
    for at = 1, #front, 2 do
      local job = front[at]
      if scores[at] > BATCH_CLASS * CLASS_WIDTH and used + #ids >= SLOTS - BATCH_RESERVE then
        ends = true
      elseif #ids < take and (reserved[job] or WORKER) == WORKER then
        if not keeps_slot(scores[at]) or may_enter(job, entries['job:' .. job]) then
          ids[#ids + 1], popped[#popped + 1], popped[#popped + 2] = job, job, front[at + 1]
        else
          refused = refused + 1
        end
      end
      last = scores[at]
    end
  end

  local first, size = 0, math.min(take + for_others, MAX_UNPACKED)
  repeat
    local front = redis.call('ZRANGE', QUEUE, first, first + size - 1, 'WITHSCORES')
    ends = #front < 2 * size
    look(front)
    first, size = first + size, math.max(size, PAGE)
  until ends or #ids == take or refused >= PAGE
  if not ends and #ids < take then
    local class = math.floor(last / CLASS_WIDTH)
    local time = class * CLASS_WIDTH + tag_of(redis.call('HGET', FAIR_QUEUE, string.format('time:%.0f', class)))
    local from = last < time and string.format('%.0f', time) or string.format('(%.1f', last)
    local at = 0
    repeat
      local page = redis.call('ZRANGEBYSCORE', QUEUE, from, '+inf', 'WITHSCORES', 'LIMIT', at, PAGE)
      look(page)
      at = at + PAGE
    until #ids > 0 or QUERY_RESERVE > 0 or ends or #page < 2 * PAGE
  end
  call_with('ZREM', QUEUE, ids, 1, #ids)
  return popped, refused
end

local servers -- by vocabulary

-- Returns a worker that serves with a vocabulary, or nil.
local function server_of(vocabulary)
  if not servers then
    servers = {}
    local entries = redis.call('HGETALL', SERVING)
    for at = 1, #entries, 2 do
      local _, digest = parse_serving(entries[at + 1])
      servers[digest or ''] = entries[at]
    end
  end
  return servers[vocabulary]
end

-- Claims a job that was removed from the queue. Returns its row of the reply, or nil when its payload is missing, or the
-- worker for which it must wait.
local function claim(job, score, lease_end)
  local payload = redis.call('GET', PAYLOAD .. job)
  if not payload then
    return nil
  end
  local state = STATE .. job
  local past = redis.call('HMGET', state, 'crashes', 'lost_workers', 'cause', 'vocabulary', 'source')
  local foreign = past[4] and past[4] ~= VOCABULARY and redis.call('EXISTS', JOURNAL .. job) == 1
  local other = foreign and server_of(past[4])
  if other then
    return nil, other
  end
  local attempt = redis.call('HINCRBY', state, 'attempt', 1)
  redis.call('HSET', state, 'score', score, 'vocabulary', foreign and past[4] or VOCABULARY)
  redis.call('PEXPIRE', state, JOB_TTL)
  redis.call('HSET', CLAIMS, job, claim_of(attempt, WORKER))
  redis.call('PEXPIRE', CLAIMS, JOB_TTL)
  redis.call('ZADD', INFLIGHT, lease_end, job)
  local journal = {}
  if attempt > 1 then
    journal_steps(past[5] or '', job) -- processes of the last release have not
    journal = redis.call('LRANGE', JOURNAL .. job, 0, -1)
    log_move(MOVES, job, past[5], WORKER, past[3])
  end
  local crashes, lost_workers = tonumber(past[1] or 0), tonumber(past[2] or 0)
  return {job, attempt, crashes, lost_workers, payload, journal, past[3] or '', foreign and 1 or 0, keepers[job] or ''}
end

local used = tonumber(ARGV[2])
local waiting = redis.call('ZCARD', QUEUE)
local reply = {waiting}
local reserved, for_us, for_others = {}, 0, 0
if waiting > 0 then
  reserved, for_us, for_others = read_reserved()
end
if waiting > 0 and used < SLOTS then
  local others = redis.call('ZCOUNT', LOAD, '-inf', '(1')
  local own = redis.call('ZSCORE', LOAD, WORKER)
  if own and tonumber(own) < 1 then
    others = others - 1
  end
  local share = math.ceil(math.max(1, waiting - for_others) / (others + 1))
  local lease_end = string.format('%.0f', now_ms() + tonumber(ARGV[4]))
  local wanted, left, refused = math.min(SLOTS - used, math.max(share, for_us)), {}, 0
  while wanted > 0 do
    local popped, taken = nil, {}
    popped, refused = pop(wanted, used, reserved, for_others)
    wanted = 0
    for at = 1, #popped, 2 do
      local job, score = popped[at], popped[at + 1]
      if reserved[job] then
        redis.call('ZREM', RESERVED, job .. ' ' .. WORKER)
        reserved[job] = nil
      end
      local row, other = claim(job, score, lease_end)
      if other then
        left[#left + 1], left[#left + 2], left[#left + 3] = score, job, other
        wanted = wanted + 1
      else
        taken[#taken + 1], taken[#taken + 2] = job, score
        if row then
          reply[#reply + 1] = row
          used = used + 1
        else
          forget(job)
        end
      end
    end
    advance(taken)
  end
  for at = 1, #left, 3 do
    redis.call('ZADD', QUEUE, left[at], left[at + 1])
    if tonumber(redis.call('ZSCORE', LOAD, left[at + 2]) or 1) < 1 then
      wake_this(left[at + 2])
    end
  end
  reply[1] = redis.call('ZCARD', QUEUE) - refused
  if QUERY_RESERVE > 0 and refused > 0 then
    reply[1] = 0 -- Queries are ahead of the refused texts, so all are claimed.
  elseif used >= SLOTS - BATCH_RESERVE then
    reply[1] = reply[1] - batch_requests()
  end
end
redis.call('ZADD', LOAD, used / SLOTS, WORKER)
if for_us > 0 and used >= SLOTS then
  for job, worker in pairs(reserved) do
    if worker == WORKER then
      redis.call('ZREM', RESERVED, job .. ' ' .. worker)
      wake()
    end
  end
end
return reply
