#!lua
-- Enqueues all jobs or none, and wakes workers for them.
-- Order is start-time fair queueing within a band. A job's start tag is its tenant's previous tag plus the cost of the
-- previous job, but at least the virtual time, which is the tag of the newest claimed job. Tenants with a backlog get
-- equal numbers of tokens, a tenant with little demand is served at once, and idle tenants accumulate no credit.
-- Prefix routing: a job with a long prompt goes to a worker that has its prefix cached, if that worker's load allows.
-- Otherwise it goes to the least loaded worker, which has the prefix from then on. The job is reserved for the chosen
-- worker for a short time (see claim.lua).
-- KEYS: queue, load, fair_queue, prefixes, reserved, media, media_requests
-- ARGV: payload prefix, state prefix, journal prefix, worker channel prefix, payload TTL (ms), maximum of jobs ahead
--       plus new jobs, band, tenant, duration (ms) of a reservation, maximum size (bytes) of the images of all
--       unfinished requests, number of shared requests, number of images, (id, encoded request)... of the shared
--       requests, (digest, file)... of the images, which belong to the only shared request, then
--       (id, payload, cost in tokens, digests of the prompt's prefixes, longest first, or '')...
-- A shared request is the request of all jobs with ids "REQUEST:NUMBER", whose payloads omit it. It is stored once, in
-- a hash with a field per job and per image, and deleted with the last job (see drop() in the prelude).
-- A job with records is skipped: it was cancelled before it arrived, or the call is repeated because its reply was lost
-- and the job waits, is claimed or has ended.
-- Returns {-(number of jobs ahead) - 1} when the jobs do not fit, and {'media'} when the images do not. Otherwise
-- {number of jobs ahead, then the counts of the jobs with digests that went to a worker with the prefix, to another
-- worker because of the load, to any worker because the prefix is new, and to no worker because none has a free slot}.

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
  local entries = redis.call('HMGET', KEYS[4], unpack(places)) -- about a dozen
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
  local least = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 1)
  local known = false
  for _, prefix in ipairs(prefixes) do
    local best, lowest
    for _, worker in ipairs(prefix.holders) do
      local load = tonumber(redis.call('ZSCORE', KEYS[2], worker) or 1)
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
    redis.call('HSET', KEYS[4], unpack(changed))
    redis.call('PEXPIRE', KEYS[4], ARGV[5])
  end
end

-- Maximum size (bytes) of a payload that is included in the wake-up.
local MAX_WAKE_UP_PAYLOAD = 16384

-- Chooses and wakes a worker for a job with a long prompt; returns the index of its counter in the reply.
local function route(job, digests, inline_payload)
  local prefixes = known_prefixes(digests)
  local worker, known = holder_of(prefixes)
  local outcome = 2
  if not worker or not wake_this(KEYS[2], ARGV[4], worker, inline_payload) then
    worker = wake(KEYS[2], ARGV[4], inline_payload)
    outcome = not worker and 5 or known and 3 or 4
  end
  if worker then
    note_holder(prefixes, worker)
    redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms() + tonumber(ARGV[9])), job .. ' ' .. worker)
    redis.call('PEXPIRE', KEYS[5], ARGV[9])
  end
  return outcome
end

-- Lines of batches hold at most this part of the bytes for images, so that others never wait for them.
local BATCH_PART = 1 / 4

local is_batch = tonumber(ARGV[7]) == 0 -- the band of batches

-- Returns whether the images of a request fit. A tenant gets as much as it leaves free for others: half alone, a third
-- beside another that uses its share, and so on; so there is always room for one more tenant. It may hold one request
-- of any size. Requests without a key have no share, because they all are one tenant.
local function images_fit(size)
  -- Requests that no job has ended expire.
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now_ms(), 'LIMIT', 0, MAX_UNPACKED)) do
    uncount_images(entry)
  end
  local all, kind, own = unpack(redis.call('HMGET', KEYS[6], unpack(media_fields(is_batch, ARGV[8]))))
  kind, own = tonumber(kind or 0), tonumber(own or 0)
  local limit = tonumber(ARGV[10])
  local free = limit - tonumber(all or 0) - size
  if is_batch and kind > 0 then
    free = math.min(free, limit * BATCH_PART - kind - size)
  end
  return free >= 0 and (own == 0 or ARGV[8] == '' or own + size <= free)
end

local base = tonumber(ARGV[7]) * BAND_WIDTH
local images = 13 + 2 * tonumber(ARGV[11])
local first = images + 2 * tonumber(ARGV[12])
local new = {} -- where the new jobs are in ARGV
for at = first, #ARGV, 4 do
  local job = ARGV[at]
  if redis.call('EXISTS', ARGV[1] .. job, ARGV[2] .. job, ARGV[3] .. job) == 0 then
    new[#new + 1] = at
  end
end
if #new == 0 then
  local score = redis.call('ZSCORE', KEYS[1], ARGV[first])
  return {score and redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score) or 0, 0, 0, 0, 0}
end

local finish_field = 'finish:' .. ARGV[7] .. ':' .. ARGV[8]
local past = redis.call('HMGET', KEYS[3], 'time:' .. ARGV[7], finish_field)
local tag = math.max(tag_of(past[1]), tag_of(past[2]))
local ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('(%.0f', base + tag))
if ahead + #new > tonumber(ARGV[6]) then
  return {-ahead - 1}
end
local shared = {}
for at = 13, images - 1, 2 do
  shared[ARGV[at]] = at + 1
end

local size = 0
for at = images + 1, first - 1, 2 do
  size = size + #ARGV[at]
end
if size > 0 and not images_fit(size) then
  return {'media'}
end

-- Stores the images of a shared request, and counts them.
local function add_images(key, request)
  for at = images, first - 1, 2 do
    redis.call('HSET', key, 'image:' .. ARGV[at], ARGV[at + 1])
  end
  local entry = string.format('%s %.0f %d %s', request, size, is_batch and 1 or 0, ARGV[8])
  redis.call('HSET', key, 'images', ARGV[12], 'counted', entry)
  redis.call('ZADD', KEYS[7], string.format('%.0f', now_ms() + tonumber(ARGV[5])), entry)
  add_to_media(entry, 1)
  redis.call('PEXPIRE', KEYS[6], 2 * ARGV[5])
  redis.call('PEXPIRE', KEYS[7], 2 * ARGV[5])
end

-- Adds a job to the users of its shared request, and stores the request with the first of them.
local function share(job)
  local request = string.match(job, '^(.+):%d+$')
  if not request or not shared[request] then
    return
  end
  local key = ARGV[1] .. 'request:' .. request
  redis.call('HSET', key, job, '')
  if redis.call('HSETNX', key, 'request', ARGV[shared[request]]) == 1 then
    if size > 0 then
      add_images(key, request)
    end
    redis.call('PEXPIRE', key, ARGV[5])
  end
end

local reply = {ahead, 0, 0, 0, 0}
for _, at in ipairs(new) do
  local job, payload, digests = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  redis.call('SET', ARGV[1] .. job, payload, 'PX', ARGV[5])
  share(job)
  redis.call('ZADD', KEYS[1], string.format('%.0f', base + tag), job)
  tag = tag + tonumber(ARGV[at + 2])
  local inline_payload = #payload <= MAX_WAKE_UP_PAYLOAD and payload or nil
  if digests == '' then
    wake(KEYS[2], ARGV[4], inline_payload)
  else
    local outcome = route(job, digests, inline_payload)
    reply[outcome] = reply[outcome] + 1
  end
end
redis.call('HSET', KEYS[3], finish_field, string.format('%.0f', tag))
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return reply
