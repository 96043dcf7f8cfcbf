-- Shared functions, prepended to each script when it is loaded, after the constants of texts.py: the prefixes PAYLOAD,
-- STATE, JOURNAL, STEPS, NEEDED and WORKER_CHANNEL, the priority classes FIRST_CLASS and BATCH_CLASS, and the times
-- JOB_TTL, LINGER, MOVES_TTL and USAGE_TTL (ms).

-- For example, claim.lua takes a job from the sorted set of waiting jobs, {job-1 = 3 * CLASS_WIDTH + 40}, writes its
-- lease to INFLIGHT, {job-1 = 1700000030000}, and to CLAIMS, {job-1 = "1 worker-a"}. emit.lua and renew.lua do
-- nothing for a worker or an attempt that is not in it. emit.lua writes {worker worker-a = "7 1700000029000"} to CLAIMS for step 7, and
-- its next call does not read the claim again if that is still there.

-- The first keys of each script.
local QUEUE, INFLIGHT, CLAIMS, SIZES, LOAD, SERVING = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FAIR_QUEUE, ENDED = KEYS[7], KEYS[8]

-- Distance between the priority classes in the queue's scores; larger than any tag (tokens) within a class.
local CLASS_WIDTH = 2 ^ 50

-- Lua's stack holds about 8,000 values, so long argument lists are split into parts of this size.
local MAX_UNPACKED = 1000

-- Calls a command with a key and list[first] to list[last], split into several calls if necessary. Returns the reply of
-- the last call.
local function call_with(command, key, list, first, last)
  local reply
  for at = first, last, MAX_UNPACKED do
    reply = redis.call(command, key, unpack(list, at, math.min(at + MAX_UNPACKED - 1, last)))
  end
  return reply
end

-- Returns a stored fair queueing tag; 1 when it is missing.
local function tag_of(stored)
  return tonumber(stored or 1)
end

-- The hash of claims has a field for each claimed job: the attempt and the worker, after a mark when it is cancelled. For
-- the fields of workers, see emit.lua.
local CANCELLED = '!'

-- A claim has more than 64 bytes, because the store searches hashes of up to 512 shorter values from the start.
local function claim_of(attempt, worker)
  return string.format('%s %-64s', attempt, worker)
end

-- Returns the attempt and the worker of a stored claim.
local function parse_claim(stored)
  return string.match(stored, '(%d+) (.-) *$')
end

-- Returns the claims of jobs, in order; false for those that are not claimed.
local function read_claims(jobs)
  if #jobs <= MAX_UNPACKED then
    return #jobs > 0 and redis.call('HMGET', CLAIMS, unpack(jobs)) or {}
  end
  local claims = {}
  for at, job in ipairs(jobs) do
    claims[at] = redis.call('HGET', CLAIMS, job)
  end
  return claims
end

-- Returns whether a stored claim is this one, cancelled or not.
local function is_held(stored, claim)
  return stored == claim or stored == CANCELLED .. claim
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end

-- The hash of serving workers has a field for each: "AT LEASE CACHES DIGEST", the time of its last heartbeat and the
-- duration of its lease (ms), whether it has a prefix cache (0/1), and the digest of its vocabulary and chat template.
-- Returns CACHES and DIGEST of an entry; nil if there is none, or the lease has ended, also if the clock was set back.
local function parse_serving(entry)
  local at, lease, caches, digest = string.match(entry or '', '^(%d+) (%d+) ([01]) (.*)$')
  if at and math.abs(now_ms() - at) <= tonumber(lease) then
    return caches, digest
  end
end

-- Wakes a worker; returns whether it is subscribed. Raises its load slightly at once, so that a burst spreads before
-- the workers report their real load. A worker without a subscription is removed from the list if it does not serve
-- either. Otherwise it counts as full until it reports its load, as it does when it has subscribed again.
local function wake_this(worker)
  redis.call('ZINCRBY', LOAD, 0.05, worker)
  if redis.call('PUBLISH', WORKER_CHANNEL .. worker, 'wake') > 0 then
    return true
  end
  if parse_serving(redis.call('HGET', SERVING, worker)) then
    redis.call('ZADD', LOAD, 1, worker)
  else
    redis.call('ZREM', LOAD, worker)
  end
  return false
end

-- Wakes the least loaded worker with a free slot, chosen at random among equals. Returns the worker, or nil if there is
-- none.
local function wake()
  for _ = 1, 8 do
    local least = redis.call('ZRANGEBYSCORE', LOAD, '-inf', '(1', 'WITHSCORES', 'LIMIT', 0, 1)
    if #least == 0 then
      return nil
    end
    local equal = redis.call('ZCOUNT', LOAD, '-inf', least[2])
    local worker = least[1]
    if equal > 1 then
      local any = tonumber(redis.call('TIME')[2]) % equal
      worker = redis.call('ZRANGE', LOAD, any, any)[1]
    end
    if wake_this(worker) then
      return worker
    end
  end
end

-- The hash of sizes has a field for each job ('job:ID'), shared request ('request:ID') and its images ('images:ID') in
-- the store: "UNIT KIND BYTES OUTCOME ACCOUNT ESTIMATE". UNIT is 'text' or 'images', KIND is 'batch' for batch requests and
-- otherwise 'other', OUTCOME is that of the job's routing (see enqueue.lua), ESTIMATE is what it was queued with, "CLASS
-- TOKENS WEIGHT FIRST", or '' if usage does not count it; " kept" follows if the job has had a slot that it keeps until it ends.
-- Further fields are the sums of bytes of each unit: of all, of an account in a kind, and of all batch
-- requests.
local function sum_fields(unit, kind, account)
  local all = 'sum:' .. unit
  local fields = {all}
  if account ~= '' then
    fields[#fields + 1] = all .. ':' .. kind .. ':' .. account
  end
  if kind == 'batch' then
    fields[#fields + 1] = all .. ':batch'
  end
  return fields
end

local function add_to_sums(unit, kind, account, bytes)
  for _, sum in ipairs(sum_fields(unit, kind, account)) do
    if redis.call('HINCRBY', SIZES, sum, bytes) <= 0 then
      redis.call('HDEL', SIZES, sum)
    end
  end
end

local function count(field, unit, kind, bytes, outcome, account, estimate)
  local entry = string.format('%s %s %.0f %d %s %s', unit, kind, bytes, outcome, account, estimate)
  redis.call('HSET', SIZES, field, entry)
  add_to_sums(unit, kind, account, bytes)
end

-- Returns the kind, the account and the estimate, if the entry was there.
local function uncount(field)
  local entry = redis.call('HGET', SIZES, field)
  if entry then
    redis.call('HDEL', SIZES, field)
    local unit, kind, bytes, account, estimate = string.match(entry, '^(%l+) (%l+) (%d+) %d (%S*) ?(.*)$')
    add_to_sums(unit, kind, account, '-' .. bytes)
    return kind, account, estimate
  end
end

local function kind_of(class)
  return tonumber(class) == BATCH_CLASS and 'batch' or 'other'
end

-- Returns the API key and the team ('' if there is none) of an account: "KEY" or "KEY@TEAM" (see
-- shared.protocol.usage.account_of).
local function parse_account(account)
  return string.match(account, '^([^@]*)@?(.*)$')
end

-- The scores in the queue of jobs that keep their slots until they end have a half. Tags are whole numbers.
local function keeps_slot(score)
  return score % 1 > 0
end

-- Returns the key of a job that keeps its slot, from its entry of sizes ('' without one), and whether it may have one of a
-- worker's slots: a key gets as many, in proportion to its weight, as all leave to others, and one in any case; a job gets
-- one again. kept: how many each key keeps, and in field 1 their sum.
local function keeper_of(entry, kept, slots)
  local key, weight, had = string.match(entry or '', '^%l+ %l+ %d+ %d ([^@ ]*)%S* %S+ %S+ (%S+) %d(.*)$')
  local own = key and kept[key] or 0
  return key or '', own == 0 or had ~= '' or own < weight * (slots - kept[1] - 1)
end

-- Counts the slots that tenants keep: ARGV[first] to ARGV[last] has the tenant of each.
local function read_kept(first, last)
  local kept = {last - first + 1}
  for at = first, last do
    kept[ARGV[at]] = (kept[ARGV[at]] or 0) + 1
  end
  return kept
end

-- Maximum number of keys among which a team's tokens are divided; more get a larger share together.
local MOST_MEMBERS = 100

local function finish_field(class, account)
  local key = parse_account(account)
  return 'finish:' .. class .. ':' .. key
end

-- Returns the weight of an account in fair queueing: that of its key, own. The keys of a team that are active divide
-- the team's weight, of_team, in proportion to their own. A key is active from here on until the virtual time reaches
-- its finish tag.
local function weight_of(class, account, own, of_team)
  local key, team = parse_account(account)
  if team == '' then
    return own
  end
  local field = 'members:' .. class .. ':' .. team
  local past = redis.call('HMGET', FAIR_QUEUE, field, 'time:' .. class)
  local names, weights, finishes = {}, {}, {}
  for name, weight in string.gmatch(past[1] or '', '(%S+) (%d+)') do
    if name ~= key then
      names[#names + 1], weights[#weights + 1] = name, weight
      finishes[#finishes + 1] = finish_field(class, name)
    end
  end
  local active, sum = {key .. ' ' .. own}, own
  for at, finish in ipairs(#names > 0 and redis.call('HMGET', FAIR_QUEUE, unpack(finishes)) or {}) do
    if #active < MOST_MEMBERS and tag_of(finish) > tag_of(past[2]) then
      active[#active + 1] = names[at] .. ' ' .. weights[at]
      sum = sum + weights[at]
    end
  end
  redis.call('HSET', FAIR_QUEUE, field, table.concat(active, ' '))
  return own * of_team / sum
end

-- Sets the finish tag of an account, and notes which one has the latest tag, and that of all others. Sets a further
-- field, too.
local function set_finish(class, account, tag, ...)
  local key, latest, others = parse_account(account), 'latest:' .. class, 'others:' .. class
  local past = redis.call('HMGET', FAIR_QUEUE, latest, others)
  if past[1] ~= key then
    local first = past[1] and tag_of(redis.call('HGET', FAIR_QUEUE, finish_field(class, past[1]))) or 1
    if tag > first then
      redis.call('HSET', FAIR_QUEUE, latest, key, others, string.format('%.0f', math.max(first, tag_of(past[2]))))
    elseif tag > tag_of(past[2]) then
      redis.call('HSET', FAIR_QUEUE, others, string.format('%.0f', tag))
    end
  end
  redis.call('HSET', FAIR_QUEUE, finish_field(class, account), string.format('%.0f', tag), ...)
end

-- Returns whether the virtual time has reached the finish tags of all other accounts: none of them waits.
local function is_alone(class, account)
  local state = redis.call('HMGET', FAIR_QUEUE, 'latest:' .. class, 'others:' .. class, 'time:' .. class)
  return state[1] == parse_account(account) and tag_of(state[2]) <= tag_of(state[3])
end

-- Notes what an account has used, a UsageCounts (shared/protocol/usage.py), until it is counted (see book.lua).
local function note_usage(kind, account, numbers)
  if string.find(numbers, '[1-9]') then
    redis.call('XADD', ENDED, '*', account .. ' ' .. kind, numbers)
  end
end

-- Returns what begins at a byte of a MessagePack array of events.py, and the byte behind it: a number, or the length of a
-- text or list.
local function head_at(event, at)
  local head = string.byte(event, at)
  local width = ({[0xcc] = 1, [0xcd] = 2, [0xce] = 4, [0xd9] = 1, [0xda] = 2, [0xdc] = 2})[head]
  local value = head < 0x80 and head or head < 0xa0 and head - 0x90 or head - 0xa0
  for byte = 1, width or 0 do
    value = (byte == 1 and 0 or value * 256) + string.byte(event, at + byte)
  end
  return value, at + 1 + (width or 0)
end

-- Returns the tokens of a prompt, and how many of them were cached: the fields of a Started.
local function prompt_of(event)
  local length, at = head_at(event, 3)
  local prompt, fingerprint = head_at(event, at + length)
  length, at = head_at(event, fingerprint)
  return prompt, (head_at(event, at + length))
end

-- Returns the tokens so far: the fields of a Delta.
local function tokens_of(event)
  local position, at = head_at(event, 3)
  return position + head_at(event, at)
end

-- Appends list[first] to list[last] to a job's journal.
local function journalize(job, list, first, last)
  if last >= first and call_with('RPUSH', JOURNAL .. job, list, first, last) == last - first + 1 then
    redis.call('PEXPIRE', JOURNAL .. job, JOB_TTL)
  end
end

-- Moves the events in a worker's log of steps to the journals of the jobs that it holds, and of one that it has lost;
-- emit.lua then checks the others. A value of the log is "JOB ATTEMPT SIZE\n" and an event of this size, for each event of
-- a step.
local function journal_steps(worker, lost)
  local events = {}
  for _, step in ipairs(redis.call('LRANGE', STEPS .. worker, 0, -1)) do
    local at = 1
    while at <= #step do
      local job, attempt, size, first = string.match(step, '^(%S+) (%d+) (%d+)\n()', at)
      at = first + size
      if events[job] == nil then
        local claim = claim_of(attempt, worker)
        events[job] = (job == lost or is_held(redis.call('HGET', CLAIMS, job), claim)) and {}
      end
      if events[job] then
        table.insert(events[job], string.sub(step, first, at - 1))
      end
    end
  end
  for job, list in pairs(events) do
    journalize(job, list or {}, 1, #(list or {}))
  end
  redis.call('DEL', STEPS .. worker)
  if lost then
    redis.call('HDEL', CLAIMS, 'worker ' .. worker)
  end
end

local STARTED, DELTA = 1, 3 -- the tags of events, their second bytes

-- Returns what a job has used that no worker ends, a UsageCounts: what its journal has of it.
local function published(job, first, errors)
  local journal, at, _, prompt, cached, tokens = JOURNAL .. job, -1, nil, 0, 0, 0
  local event = redis.call('LINDEX', journal, 0)
  local served = event or errors > 0
  if event and string.byte(event, 2) == STARTED and (string.match(job, ':(%d+)$') or '0') == '0' then
    _, prompt, cached = pcall(prompt_of, event)
  end
  event = event and redis.call('LINDEX', journal, at)
  while event and string.byte(event, 2) ~= DELTA do
    at = at - 1
    event = redis.call('LINDEX', journal, at)
  end
  if event then
    _, tokens = pcall(tokens_of, event)
  end
  return string.format(
    '%s %.0f %.0f %.0f 0 0 0 %d',
    served and first or 0, tonumber(prompt) or 0, tonumber(cached) or 0, tonumber(tokens) or 0, errors
  )
end

-- Ends the account of a job: what it has used takes the place of its estimate in its tenant's finish tag, and is noted.
-- A token has the weight that it had when the job was enqueued: since then, keys of its team have come and gone. What a
-- tenant used beyond the estimate while no other one waited has delayed nobody, and costs nothing.
-- used: a UsageCounts, as its worker counts it; nil if no worker ends it.
local function settle(job, used, errors)
  local kind, account, estimate = uncount('job:' .. job)
  local class, cost, weight, first = string.match(estimate or '', '^(%S+) (%S+) (%S+) (%d)')
  if class then
    used = used or published(job, first, errors or 0)
    local prompt, completion = string.match(used, '^%d+ (%d+) %d+ (%d+)')
    local excess = (prompt or 0) + (completion or 0) - cost
    local past = redis.call('HMGET', FAIR_QUEUE, 'time:' .. class, finish_field(class, account))
    -- Without keys, jobs are in order of arrival.
    if account ~= '' and past[2] and (excess < 0 or not is_alone(class, account)) then
      set_finish(class, account, math.max(tag_of(past[1]), tag_of(past[2]) + excess / weight))
    end
  end
  if kind and used then
    note_usage(kind, account, used)
  end
end

-- Ends a job: deletes all its records but its journal, and with the last job of a shared request (see enqueue.lua) the
-- request and its images; and settles what it has used (see there). All jobs end here, exactly once.
local function drop(job, used, errors)
  redis.call('DEL', PAYLOAD .. job, STATE .. job)
  redis.call('ZREM', INFLIGHT, job)
  redis.call('HDEL', CLAIMS, job)
  settle(job, used, errors)
  local request = string.match(job, '^(.+):%d+$')
  if request then
    local key = PAYLOAD .. 'request:' .. request
    redis.call('HDEL', key, job)
    -- Beside the jobs, it has a field with the request, and with images one for each and their number. It has none if it
    -- has expired.
    local images = redis.call('HGET', key, 'images')
    if redis.call('HLEN', key) <= (images and 2 + images or 1) then
      redis.call('DEL', key)
      uncount('request:' .. request)
      uncount('images:' .. request)
    end
  end
end

-- Ends a job that no worker ends with its terminal event, which is appended to its journal.
local function end_with(job, event, errors)
  drop(job, nil, errors)
  redis.call('RPUSH', JOURNAL .. job, event)
  redis.call('PEXPIRE', JOURNAL .. job, LINGER)
end

-- Deletes everything about a job.
local function forget(job)
  drop(job)
  redis.call('DEL', JOURNAL .. job)
end

-- Logs for the fleet view that a job has left the worker source, for the queue or for the worker target. Does
-- nothing when source is not known.
local function log_move(moves_key, job, source, target, cause)
  if not source or source == '' then
    return
  end
  redis.call('LPUSH', moves_key, cjson.encode({
    time = math.floor(now_ms()) / 1000, request = job, from = source,
    to = target or cjson.null, reason = cause == 'worker_lost' and cause or 'released',
  }))
  redis.call('LTRIM', moves_key, 0, 199)
  redis.call('PEXPIRE', moves_key, MOVES_TTL)
end

-- Returns a claimed job to its old position in the queue, and notes from where and why. Ends it instead when it is
-- cancelled, and deletes it when its state has expired; its API replica then notices the missing payload.
local function requeue(job, cause, moves_key)
  local _, worker = parse_claim(redis.call('HGET', CLAIMS, job) or '')
  if worker then
    journal_steps(worker, job)
  end
  local state = redis.call('HMGET', STATE .. job, 'score', 'cancelled')
  if state[2] then
    end_with(job, state[2])
    return false
  end
  if not state[1] then
    forget(job)
    return false
  end
  redis.call('ZREM', INFLIGHT, job)
  redis.call('HDEL', CLAIMS, job)
  redis.call('HSET', STATE .. job, 'cause', cause, 'source', worker or '')
  redis.call('ZADD', QUEUE, state[1], job)
  log_move(moves_key, job, worker, nil, cause)
  return true
end

-- Advances the virtual time of each priority class to the tag of its newest claimed job. Jobs that returned to the queue have
-- older tags and do not move it back. claimed: alternating ids and scores, by ascending score.
local function advance(claimed)
  local newest = {}
  for at = 2, #claimed, 2 do
    local class = math.floor(tonumber(claimed[at]) / CLASS_WIDTH)
    newest[string.format('time:%.0f', class)] = math.ceil(tonumber(claimed[at])) - class * CLASS_WIDTH
  end
  for field, tag in pairs(newest) do
    if tag > tag_of(redis.call('HGET', FAIR_QUEUE, field)) then
      redis.call('HSET', FAIR_QUEUE, field, string.format('%.0f', tag))
    end
  end
end
