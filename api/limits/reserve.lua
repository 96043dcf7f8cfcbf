#!lua
-- Reserves one request in the limits of an owner, an API key or a team, or returns the exceeded limit and how long to wait.
-- Rates use the generic cell rate algorithm: a bucket is stored as the time at which it will be full again. A bucket
-- holds the allowance of one minute.
-- KEYS: buckets, admitted, spent tokens
-- ARGV: tokens of this request, its reservation ("TOKENS NAME REPLICA"), maximum duration of a request (ms), this replica,
--       lease (ms), requests per minute, tokens per minute, concurrent requests, tokens per day, tokens per month (each ''
--       if unlimited), then if they are known: '', (replica, end of its lease (s))... of the registry
-- A reservation that is there already was made by this call, whose reply was lost: nothing is counted again.
-- Budgets are tokens per day and month of UTC, counted after requests have ended (see book.lua of the queue). A request is
-- refused when what was spent and the tokens of the reservations, in the field "reserved" of the buckets, use one up.
-- Returns {0 or the exceeded limit (1 requests, 2 tokens, 3 concurrency, 4 tokens per day, 5 tokens per month), ms to wait
-- (0: until a reservation ends), remaining requests, ms until the bucket is full, remaining tokens, ms until the bucket is
-- full, tokens spent this day, this month}; -1 if it must know the registered replicas, and has reserved nothing.
local MINUTE, DAY = 60000, 86400000

-- Maximum debt of a bucket (ms). Larger ones are capped, here and in settle.lua.
local LONGEST_DEBT = 86400000

-- Maximum number of concurrency places examined per call, oldest first.
local MOST_EXAMINED = 256

local TOKENS, RESERVATION, LONGEST, REPLICA, LEASE = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local leases = ARGV[11] and {} -- of the registered replicas
local must_know = false -- the leases
for at = 12, #ARGV, 2 do
  leases[ARGV[at]] = ARGV[at + 1] * 1000
end

-- Returns the owner's limits and what is stored for them.
local function read()
  local owner = {
    buckets = KEYS[1], admitted = KEYS[2], spent_key = KEYS[3], rates = {ARGV[6], ARGV[7]},
    concurrency = ARGV[8], budgets = {ARGV[9], ARGV[10]},
    full = {}, left = {-1, -1}, back = {0, 0}, spent = {0, 0},
  }
  owner.budgeted = owner.budgets[1] ~= '' or owner.budgets[2] ~= ''
  owner.reserves = owner.budgeted or owner.rates[1] ~= '' or owner.rates[2] ~= '' or owner.concurrency ~= ''
  local stored = redis.call('HMGET', owner.buckets, 'requests', 'tokens', 'at')
  -- If the store's clock was set back since 'at', the time of the last reservation, the buckets move back with it.
  local set_back = (tonumber(stored[3]) or now) - now
  if set_back > 0 then
    for bucket, field in ipairs({'requests', 'tokens'}) do
      stored[bucket] = string.format('%.3f', (tonumber(stored[bucket]) or 0) - set_back)
      redis.call('HSET', owner.buckets, field, stored[bucket], 'at', string.format('%.0f', now))
    end
  end
  owner.stored = stored
  owner.repeated = redis.call('ZSCORE', owner.admitted, RESERVATION)
  owner.costs = owner.repeated and {0, 0} or {1, TOKENS}
  return owner
end

-- Returns for how long (ms) another replica keeps its places; nil while it is registered. A replica loses them after
-- it has been absent for a lease, because all replicas are absent for a moment after an outage of the store. The field
-- "missed:REPLICA" of the buckets holds the time since when it has been absent.
local function time_left(buckets, replica)
  if not leases then
    must_know = true
    return nil
  end
  local field = 'missed:' .. replica
  if (leases[replica] or 0) > now then
    redis.call('HDEL', buckets, field)
    return nil
  end
  local since = tonumber(redis.call('HGET', buckets, field)) or math.huge
  if since > now then
    since = now
    redis.call('HSET', buckets, field, string.format('%.0f', now))
    redis.call('PEXPIRE', buckets, math.max(MINUTE, redis.call('PTTL', buckets)))
  end
  return since + LEASE - now
end

local function free(owner, place)
  if redis.call('ZREM', owner.admitted, place) == 1 and owner.budgeted then
    redis.call('HINCRBY', owner.buckets, 'reserved', -(tonumber(string.match(place, '^(%d+) ')) or 0))
  end
end

-- Frees places of requests that have certainly ended.
local function free_expired(owner)
  for _, place in ipairs(redis.call('ZRANGEBYSCORE', owner.admitted, '-inf', now, 'LIMIT', 0, MOST_EXAMINED)) do
    free(owner, place)
  end
end

-- Frees places of replicas that have gone; returns the ms until the next ones are freed, 0 if none will be.
local function free_places(owner)
  local soonest = math.huge
  local left = {[REPLICA] = math.huge}
  for _, place in ipairs(redis.call('ZRANGE', owner.admitted, 0, MOST_EXAMINED - 1)) do
    local replica = string.match(place, '^%d+ %S+ (.+)$') or REPLICA
    left[replica] = left[replica] or time_left(owner.buckets, replica) or math.huge
    if left[replica] <= 0 then
      free(owner, place)
      redis.call('HDEL', owner.buckets, 'missed:' .. replica)
    else
      soonest = math.min(soonest, left[replica])
    end
  end
  return soonest < math.huge and math.ceil(soonest) or 0
end

local today = math.floor(now / DAY)

-- Returns the day of the month, from 1, of a day since 1970 (the algorithm is Howard Hinnant's civil_from_days).
local function day_of_month(day)
  local of_era = (day + 719468) % 146097
  local year = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365
  )
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return of_year - math.floor((153 * math.floor((5 * of_year + 2) / 153) + 2) / 5) + 1
end

-- Returns the tokens of the reservations. Those of lost replicas are freed before they refuse a request.
local function reserved_by(owner, most)
  if redis.call('EXISTS', owner.admitted) == 0 then
    redis.call('HDEL', owner.buckets, 'reserved')
  end
  local reserved = tonumber(redis.call('HGET', owner.buckets, 'reserved')) or 0
  if reserved >= most then
    free_places(owner)
    reserved = tonumber(redis.call('HGET', owner.buckets, 'reserved')) or 0
  end
  return reserved
end

-- Returns the budget that is used up, if any, and the ms until it is renewed, 0 if only reservations use it up.
local function used_up(owner)
  if not owner.budgeted then
    return
  end
  local first = today - day_of_month(today) + 1
  local past = redis.call('HGETALL', owner.spent_key)
  for at = 1, #past, 2 do
    if tonumber(past[at]) == today then
      owner.spent[1] = tonumber(past[at + 1])
    end
    if tonumber(past[at]) >= first then
      owner.spent[2] = owner.spent[2] + past[at + 1]
    end
  end
  local following = first + 31
  local ends = {today + 1, following - day_of_month(following) + 1}
  local left = {}
  for budget = 2, 1, -1 do
    left[budget] = (tonumber(owner.budgets[budget]) or math.huge) - owner.spent[budget]
    if left[budget] <= 0 then
      return 3 + budget, ends[budget] * DAY - now
    end
  end
  local least = left[2] <= left[1] and 2 or 1
  if reserved_by(owner, left[least]) >= left[least] then
    return 3 + least, 0
  end
end

-- Returns whether all places are taken, and the ms until some are freed.
local function crowded(owner)
  if owner.concurrency == '' or redis.call('ZCARD', owner.admitted) < tonumber(owner.concurrency) then
    return false
  end
  local wait = free_places(owner)
  return redis.call('ZCARD', owner.admitted) >= tonumber(owner.concurrency), wait
end

-- Returns the exceeded limit, 0 if there is none, and the ms to wait.
local function check(owner)
  free_expired(owner)
  local limit, wait = used_up(owner)
  if owner.repeated then
    limit = nil
  elseif not limit then
    local full
    full, wait = crowded(owner)
    limit = full and 3 or nil
  end
  for bucket = 1, 2 do
    if owner.rates[bucket] ~= '' then
      local known = tonumber(owner.stored[bucket])
      owner.full[bucket] = known and known > now and math.min(known, now + LONGEST_DEBT) or now
      local over = owner.full[bucket] + owner.costs[bucket] * MINUTE / tonumber(owner.rates[bucket]) - now - MINUTE
      -- Tolerates rounding errors below a millisecond.
      if not limit and over > 0.5 and not owner.repeated then
        limit, wait = bucket, math.ceil(over)
      end
    end
  end
  return limit or 0, limit and wait or 0
end

-- Counts the request, if it is not refused, and the state of the owner's rates.
local function reserve(owner, refused)
  for bucket = 1, 2 do
    if owner.full[bucket] then
      local limit = tonumber(owner.rates[bucket])
      if not refused then
        owner.full[bucket] = owner.full[bucket] + owner.costs[bucket] * MINUTE / limit
        redis.call(
          'HSET', owner.buckets, bucket == 1 and 'requests' or 'tokens', string.format('%.3f', owner.full[bucket]),
          'at', string.format('%.0f', now)
        )
      end
      owner.back[bucket] = math.max(0, math.ceil(owner.full[bucket] - now))
      owner.left[bucket] = math.max(0, math.floor((MINUTE - (owner.full[bucket] - now)) * limit / MINUTE + 0.001))
    end
  end
  if not refused then
    if owner.reserves then
      local is_new = redis.call('ZADD', owner.admitted, now + tonumber(LONGEST), RESERVATION) == 1
      if is_new and owner.budgeted then
        redis.call('HINCRBY', owner.buckets, 'reserved', string.format('%.0f', TOKENS))
      end
      redis.call('PEXPIRE', owner.admitted, LONGEST)
    end
    local least = owner.budgeted and tonumber(LONGEST) or MINUTE
    redis.call('PEXPIRE', owner.buckets, math.max(least, owner.back[1], owner.back[2]) + 1000)
  end
end

local owner = read()
local limit, wait = check(owner)
if must_know then
  return -1
end
reserve(owner, limit > 0)
return {
  limit, wait, owner.left[1], owner.back[1], owner.left[2], owner.back[2], owner.spent[1], owner.spent[2],
}
