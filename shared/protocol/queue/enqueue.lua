#!lua
-- Accepts jobs all or none, and wakes workers for them.
-- A job's place is its start tag by start-time fair queueing: a tenant's next tag lies behind its last one by what that
-- job costs, but never before the virtual time, which is the tag of the newest claimed job. So tenants that all want
-- more than there is get as many tokens each, and one that wants little is served at once. The newest claim's tag also
-- starts those who were away: nobody saves up a lead.
-- A job with a long prompt goes to a worker that has computed one that begins alike, if its load allows, else to the
-- least loaded one, which has that beginning from then on. The job is reserved for it for a moment (see claim.lua).
-- KEYS: queue, load, fair_queue, prefixes, reserved
-- ARGV: payload prefix, worker channel prefix, state prefix, payload TTL (ms), most jobs ahead and new ones together,
--       band, tenant, time (ms) for which a job is reserved, number of shared requests, (id, encoded request)... of those,
--       then (id, payload, cost in tokens, digests of the prompt's beginnings, the longest first, or '')...
-- A shared request belongs to the jobs whose ids are its own and a number, "REQUEST:NUMBER"; their payloads lack it. It is
-- stored once, in a hash with a field for each of its jobs, and deleted with the last of them (see drop() in the prelude).
-- A job that a worker has, or that was cancelled before it came, is left alone: its command was sent twice, or late.
-- Returns {-(number of jobs ahead) - 1} when the jobs don't fit; else {number of jobs ahead, and of those with digests:
-- how many went to a worker with the same beginning, to another one because of the load, to any because it is new, and
-- to none because nobody has a free slot}.

-- A digest's first letters are its place in the hash of prefixes, where a new beginning takes the place of an old one:
-- so the hash is bounded. Its fields hold the digest and the workers, the last one to get such a job first.
local DIGEST, PLACE, MOST_HOLDERS = 16, 4, 8

-- By how much a worker's load may exceed the least one for the sake of a beginning: by a share of its slots, or by a
-- factor, as in SGLang's router.
local MORE_LOAD, LOAD_FACTOR = 0.25, 1.5

local function known_beginnings(digests)
  local places = {}
  for at = 1, #digests, DIGEST do
    places[#places + 1] = string.sub(digests, at, at + PLACE - 1)
  end
  local entries = redis.call('HMGET', KEYS[4], unpack(places)) -- a dozen
  local beginnings = {}
  for at, place in ipairs(places) do
    local digest = string.sub(digests, (at - 1) * DIGEST + 1, at * DIGEST)
    local holders = {}
    if entries[at] and string.sub(entries[at], 1, DIGEST) == digest then
      for worker in string.gmatch(string.sub(entries[at], DIGEST + 1), '[^\n]+') do
        holders[#holders + 1] = worker
      end
    end
    beginnings[at] = {place = place, digest = digest, holders = holders}
  end
  return beginnings
end

-- Returns the least loaded worker that has the longest beginning, or nil where the load allows none; and whether any
-- worker has one.
local function holder_of(beginnings)
  local least = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 1)
  local known = false
  for _, beginning in ipairs(beginnings) do
    local best, lowest
    for _, worker in ipairs(beginning.holders) do
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

local function note_holder(beginnings, worker)
  local changed = {}
  for _, beginning in ipairs(beginnings) do
    if beginning.holders[1] ~= worker then
      local entry = {beginning.digest, worker}
      for _, other in ipairs(beginning.holders) do
        if other ~= worker and #entry <= MOST_HOLDERS then
          entry[#entry + 1] = other
        end
      end
      changed[#changed + 1] = beginning.place
      changed[#changed + 1] = table.concat(entry, '\n')
    end
  end
  if #changed > 0 then
    redis.call('HSET', KEYS[4], unpack(changed))
    redis.call('PEXPIRE', KEYS[4], ARGV[4])
  end
end

-- Bytes up to which a job's payload goes with the wake-up, too.
local MOST_SHOWN = 16384

-- Wakes a worker for a job with a long prompt; returns where in the reply it counts.
local function route(job, digests, shown)
  local beginnings = known_beginnings(digests)
  local worker, known = holder_of(beginnings)
  local outcome = 2
  if not worker or not wake_this(KEYS[2], ARGV[2], worker, shown) then
    worker = wake(KEYS[2], ARGV[2], shown)
    outcome = not worker and 5 or known and 3 or 4
  end
  if worker then
    note_holder(beginnings, worker)
    redis.call('ZADD', KEYS[5], string.format('%.0f', now_ms() + tonumber(ARGV[8])), job .. ' ' .. worker)
    redis.call('PEXPIRE', KEYS[5], ARGV[8])
  end
  return outcome
end

local base = tonumber(ARGV[6]) * BAND_WIDTH
local mine = 'finish:' .. ARGV[6] .. ':' .. ARGV[7]
local past = redis.call('HMGET', KEYS[3], 'time:' .. ARGV[6], mine)
local tag = math.max(tag_of(past[1]), tag_of(past[2]))
local ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('(%.0f', base + tag))
local first = 10 + 2 * tonumber(ARGV[9])
if ahead + (#ARGV - first + 1) / 4 > tonumber(ARGV[5]) then
  return {-ahead - 1}
end
local shared = {}
for at = 10, first - 1, 2 do
  shared[ARGV[at]] = at + 1
end

-- Notes that a job needs its shared request, and stores that with the first of its jobs.
local function share(job)
  local request = string.match(job, '^(.+):%d+$')
  if not request or not shared[request] then
    return
  end
  local key = ARGV[1] .. 'request:' .. request
  redis.call('HSET', key, job, '')
  if redis.call('HLEN', key) == 1 then
    redis.call('HSET', key, 'request', ARGV[shared[request]])
    redis.call('PEXPIRE', key, ARGV[4])
  end
end

local reply = {ahead, 0, 0, 0, 0}
for at = first, #ARGV, 4 do
  local job, payload, digests = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  if redis.call('EXISTS', ARGV[3] .. job) == 0 then
    redis.call('SET', ARGV[1] .. job, payload, 'PX', ARGV[4])
    share(job)
    redis.call('ZADD', KEYS[1], string.format('%.0f', base + tag), job)
    tag = tag + tonumber(ARGV[at + 2])
    local shown = #payload <= MOST_SHOWN and payload or nil
    if digests == '' then
      wake(KEYS[2], ARGV[2], shown)
    else
      local outcome = route(job, digests, shown)
      reply[outcome] = reply[outcome] + 1
    end
  end
end
redis.call('HSET', KEYS[3], mine, string.format('%.0f', tag))
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return reply
