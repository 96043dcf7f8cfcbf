#!lua
-- Enqueues all jobs or none, and wakes workers for them.
-- Order is start-time fair queueing within a priority class. A job's start tag is its tenant's previous tag plus the cost of the
-- previous job, but at least the virtual time, which is the tag of the newest claimed job. Tenants with a backlog get
-- numbers of tokens in proportion to their weights, by which costs are divided (see weight_of() in the prelude); a tenant
-- with little demand is served at once, and idle tenants accumulate no credit. A tenant is a key. Its queries, short
-- texts to embed, are in an order of their own, so that none waits behind what its own tenant indexes.
-- Prefix routing: a job with a long prompt goes to a worker that has its prefix cached, if that worker's load allows.
-- Otherwise it goes to the least loaded worker, which has the prefix from then on if it has a prefix cache. The job is
-- reserved for the chosen worker for a short time (see claim.lua).
-- The bytes of all queued and claimed jobs have a limit, and so have those of their images.
-- A job with records is skipped: it was cancelled before it arrived, or the call is repeated because its reply was lost
-- and the job waits, is claimed or has ended.
-- KEYS: see the prelude, prefixes, reserved
-- ARGV: maximum of jobs ahead plus new jobs, maximum of bytes, priority class, account ('' without a key),
--       duration (ms) of a reservation, maximum of bytes of images, number of shared requests, number
--       of images, weight of the key, weight of its team, whether the first job is its request's first (0/1; '' if
--       usage does not count the request), whether the jobs keep their slots until they end, or are texts to index
--       (0/1), whether it is a query
--       (0/1), (id, encoded request)... of the shared requests, (digest, file)... of the images, which belong to the only
--       shared request, then (id, payload, cost in tokens, digests of the prompt's prefixes, longest first, or '')...
-- A shared request is the request of all jobs with ids "REQUEST:NUMBER", whose payloads omit it. It is stored once, in
-- a hash with a field per job and per image, and deleted with the last job (see drop() in the prelude).
-- Returns {-1, reason, number of jobs ahead, number of jobs that must end first} when the jobs do not fit; the reason is
-- 1 for the number of jobs, 2 for the bytes of all, 3 for those of the account and 4 for the images. Otherwise {number of
-- jobs ahead, then the counts of the jobs with digests that went to a worker with the prefix, to another worker because
-- of the load, to any worker because the prefix is new, and to no worker because none has a free slot}.

local PREFIXES, RESERVED = KEYS[9], KEYS[10]
local MAX_JOBS, MAX_BYTES, CLASS, ACCOUNT = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- The first characters of a digest are its field in the hash of prefixes. A new prefix overwrites an old one in the
-- same field, which bounds the hash. A value is the digest and the workers that have the prefix, most recent first.
local DIGEST, PLACE, MAX_HOLDERS = 16, 4, 8

-- By how much the load of a worker with the prefix may exceed the lowest load: an absolute share of slots, or a factor,
-- as in SGLang's router.
local MORE_LOAD, LOAD_FACTOR = 0.25, 1.5

local function known_prefixes(digests)
  local places = {}
  for at = 1, #digests, DIGEST do
    places[#places + 1] = string.sub(digests, at, at + PLACE - 1)
  end
  local entries = redis.call('HMGET', PREFIXES, unpack(places)) -- about a dozen
  local prefixes = {}
  for at, place in ipairs(places) do
    local digest = string.sub(digests, (at - 1) * DIGEST + 1, at * DIGEST)
    local holders = {}
    if entries[at] and string.sub(entries[at], 1, DIGEST) == digest then
      for worker in string.gmatch(string.sub(entries[at], DIGEST + 1), '[^\n]+') do
        holders[#holders + 1] = worker
      end
    end
    prefixes[at] = {place = place, digest = digest, holders = holders}
  end
  return prefixes
end

-- Returns the least loaded worker with the longest cached prefix, or nil when the load allows none; and whether any
-- worker has one of the prefixes.
local function holder_of(prefixes)
  local least = tonumber(redis.call('ZRANGE', LOAD, 0, 0, 'WITHSCORES')[2] or 1)
  local known = false
  for _, prefix in ipairs(prefixes) do
    local best, lowest
    for _, worker in ipairs(prefix.holders) do
      local load = tonumber(redis.call('ZSCORE', LOAD, worker) or 1)
      if not best or load < lowest then
        best, lowest = worker, load
      end
    end
    known = known or best ~= nil
    if best and lowest < 1 and (lowest <= least + MORE_LOAD or lowest <= least * LOAD_FACTOR) then
      return best, true
    end
  end
  return nil, known
end

local function note_holder(prefixes, worker)
  if parse_serving(redis.call('HGET', SERVING, worker)) == '0' then
    return
  end
  local changed = {}
  for _, prefix in ipairs(prefixes) do
    if prefix.holders[1] ~= worker then
      local entry = {prefix.digest, worker}
      for _, other in ipairs(prefix.holders) do
        if other ~= worker and #entry <= MAX_HOLDERS then
          entry[#entry + 1] = other
        end
      end
      changed[#changed + 1] = prefix.place
      changed[#changed + 1] = table.concat(entry, '\n')
    end
  end
  if #changed > 0 then
    redis.call('HSET', PREFIXES, unpack(changed))
    redis.call('PEXPIRE', PREFIXES, JOB_TTL)
  end
end

-- Chooses and wakes a worker for a job with a long prompt; returns the index of its counter in the reply.
local function route(job, digests)
  local prefixes = known_prefixes(digests)
  local worker, known = holder_of(prefixes)
  local outcome = 2
  if not worker or not wake_this(worker) then
    worker = wake()
    outcome = not worker and 5 or known and 3 or 4
  end
  if worker then
    note_holder(prefixes, worker)
    redis.call('ZADD', RESERVED, string.format('%.0f', now_ms() + tonumber(ARGV[5])), job .. ' ' .. worker)
    redis.call('PEXPIRE', RESERVED, ARGV[5])
  end
  return outcome
end

-- Batch requests hold at most this part of the bytes, so that others never wait for them.
local BATCH_PART = 1 / 4

local KIND = kind_of(CLASS)

-- Returns about how many jobs must end before so many bytes more fit, 0 if they fit now; and whether that is because of
-- the account's share. An account gets as much as it leaves free for others: half alone, a third beside another that uses
-- its share, and so on; so there is always room for one more account. It may hold one request of any size. Requests
-- without a key have no share, because they all are one account.
local function jobs_over(unit, size, limit)
  local sums, stored = {}, redis.call('HMGET', SIZES, unpack(sum_fields(unit, KIND, ACCOUNT)))
  for at, sum in ipairs(stored) do
    sums[at] = tonumber(sum) or 0
  end
  local all, own, lines = sums[1], ACCOUNT ~= '' and sums[2] or 0, KIND == 'batch' and sums[#sums] or 0
  local free = limit - all - size
  if lines > 0 then
    free = math.min(free, limit * BATCH_PART - lines - size)
  end
  local over = -free
  local by_share = over <= 0 and own > 0
  if by_share then
    over = (own + size - free) / 2 -- what ends adds to what is free, too
  end
  if over <= 0 then
    return 0
  end
  local jobs = redis.call('ZCARD', QUEUE) + redis.call('ZCARD', INFLIGHT)
  return math.max(1, math.ceil(over * jobs / math.max(1, all))), by_share
end

local base = tonumber(CLASS) * CLASS_WIDTH
local images = 14 + 2 * tonumber(ARGV[7])
local first = images + 2 * tonumber(ARGV[8])
local new, bytes = {}, 0 -- where the new jobs are in ARGV, and their size
local repeated = {0, 0, 0, 0, 0}
for at = first, #ARGV, 4 do
  local job = ARGV[at]
  local entry = redis.call('HGET', SIZES, 'job:' .. job)
  if entry then
    local outcome = tonumber(string.match(entry, '^%l+ %l+ %d+ (%d)')) or 0
    if outcome > 0 then
      repeated[outcome] = repeated[outcome] + 1
    end
  elseif redis.call('EXISTS', STATE .. job, JOURNAL .. job) == 0 then
    new[#new + 1] = at
    bytes = bytes + #ARGV[at + 1]
  end
end
if #new == 0 then
  local score = redis.call('ZSCORE', QUEUE, ARGV[first])
  repeated[1] = score and redis.call('ZCOUNT', QUEUE, '-inf', '(' .. score) or 0
  return repeated
end
local shared = {}
for at = 14, images - 1, 2 do
  shared[ARGV[at]] = ARGV[at + 1]
  bytes = bytes + #ARGV[at + 1]
end

local WEIGHT_FIELD = 'weight:' .. parse_account(ACCOUNT)
local QUERIES = ARGV[13] == '1' and 'queries:' .. finish_field(CLASS, ACCOUNT)
local past = redis.call(
  'HMGET', FAIR_QUEUE, 'time:' .. CLASS, finish_field(CLASS, ACCOUNT), WEIGHT_FIELD, 'newest', QUERIES or 'newest'
)
local behind = math.max(tag_of(past[1]), tag_of(past[2]))
local tag = QUERIES and math.max(tag_of(past[1]), tag_of(past[5])) or behind
local ahead = redis.call('ZCOUNT', QUEUE, '-inf', string.format('(%.0f', base + tag))
if ahead + #new > MAX_JOBS then
  return {-1, 1, ahead, ahead + #new - MAX_JOBS}
end
local over, by_share = jobs_over('text', bytes, MAX_BYTES)
if over > 0 then
  return {-1, by_share and 3 or 2, ahead, over}
end
local size = 0
for at = images + 1, first - 1, 2 do
  size = size + #ARGV[at]
end
over = size > 0 and jobs_over('images', size, tonumber(ARGV[6])) or 0
if over > 0 then
  return {-1, 4, ahead, over}
end

-- Adds a job to the users of its shared request, and stores the request with the first of them.
local function share(job)
  local request = string.match(job, '^(.+):%d+$')
  if not request or not shared[request] then
    return
  end
  local key = PAYLOAD .. 'request:' .. request
  redis.call('HSET', key, job, '')
  if redis.call('HSETNX', key, 'request', shared[request]) == 1 then
    count('request:' .. request, 'text', KIND, #shared[request], 0, ACCOUNT, '')
    if size > 0 then
      for at = images, first - 1, 2 do
        redis.call('HSET', key, 'image:' .. ARGV[at], ARGV[at + 1])
      end
      redis.call('HSET', key, 'images', ARGV[8])
      count('images:' .. request, 'images', KIND, size, 0, ACCOUNT, '')
    end
    redis.call('PEXPIRE', key, JOB_TTL)
  end
end

local reply = {ahead, 0, 0, 0, 0}
local weight = weight_of(CLASS, ACCOUNT, tonumber(ARGV[9]), tonumber(ARGV[10]))
if weight ~= 1 then
  redis.call('HSET', FAIR_QUEUE, WEIGHT_FIELD, string.format('%.17g', weight))
elseif past[3] then
  redis.call('HDEL', FAIR_QUEUE, WEIGHT_FIELD)
end
local keeps = ARGV[12] == '1' and '.5' or ''
for _, at in ipairs(new) do
  local job, payload, digests = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  redis.call('SET', PAYLOAD .. job, payload, 'PX', JOB_TTL)
  share(job)
  redis.call('ZADD', QUEUE, string.format('%.0f', base + tag) .. keeps, job)
  tag = tag + math.max(1, ARGV[at + 2] / weight)
  local outcome = 0
  if digests == '' then
    wake()
  else
    outcome = route(job, digests)
    reply[outcome] = reply[outcome] + 1
  end
  local is_first, estimate = at == first and ARGV[11] or 0, ''
  if ARGV[11] ~= '' then
    estimate = string.format('%s %s %.17g %s', CLASS, ARGV[at + 2], weight, is_first)
  end
  count('job:' .. job, 'text', KIND, #payload, outcome, ACCOUNT, estimate)
end
redis.call('PEXPIRE', SIZES, JOB_TTL)
if QUERIES then -- Their cost counts in both orders.
  redis.call('HSET', FAIR_QUEUE, QUERIES, string.format('%.0f', tag))
  tag = behind + math.max(1, ARGV[first + 2] / weight)
end
-- The key of the newest request, its time (s), and that of the newest one of any other key (see claim.lua).
local newest, time, before = string.match(past[4] or ' 0 0', '^(%S*) (%d+) (%d+)$')
local key = parse_account(ACCOUNT)
time = newest == key and before or time
set_finish(CLASS, ACCOUNT, tag, 'newest', key .. ' ' .. redis.call('TIME')[1] .. ' ' .. time)
redis.call('PEXPIRE', FAIR_QUEUE, JOB_TTL)
return reply
