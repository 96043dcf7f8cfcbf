-- Reserves one request of an API key, or returns the exceeded limit and how long to wait.
-- Rates use the generic cell rate algorithm: a bucket is stored as the time at which it will be full again. A bucket
-- holds the allowance of one minute.
-- KEYS: buckets, admitted
-- ARGV: requests per minute, tokens per minute, concurrent requests (each '' if unlimited), tokens of this request,
--       its reservation ("NAME REPLICA"), maximum duration of a request (ms), prefix of replicas' registry records,
--       this replica, lease (ms), tokens per day, tokens per month (each '' if unlimited), key of the spent tokens
-- A reservation that is there already was made by this call, whose reply was lost: nothing is counted again.
-- Budgets are tokens per day and month of UTC, counted when requests end (see add_usage in the queue's prelude). Requests
-- that run while one is used up are served.
-- Returns {0 or the exceeded limit (1 requests, 2 tokens, 3 concurrency, 4 tokens per day, 5 tokens per month), ms to wait,
--          remaining requests, ms until the bucket is full, remaining tokens, ms until the bucket is full,
--          tokens spent this day, this month}.
local MINUTE = 60000

-- Maximum debt of a bucket (ms); stored values beyond it are invalid.
local LONGEST_DEBT = 86400000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local stored = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')

-- If the store's clock was set back since 'at', the time of the last reservation, the buckets move back with it.
local set_back = (tonumber(stored[3]) or now) - now
if set_back > 0 then
  for bucket, field in ipairs({'requests', 'tokens'}) do
    stored[bucket] = string.format('%.3f', (tonumber(stored[bucket]) or 0) - set_back)
    redis.call('HSET', KEYS[1], field, stored[bucket], 'at', string.format('%.0f', now))
  end
end
local repeated = redis.call('ZSCORE', KEYS[2], ARGV[5])
local costs = repeated and {0, 0} or {1, tonumber(ARGV[4])}
local full, left, back = {}, {-1, -1}, {0, 0}
local refusing, wait = 0, 0

-- Maximum number of concurrency places examined per call, oldest first.
local MOST_EXAMINED = 256

-- Returns for how long (ms) another replica keeps its places; nil while it is registered. A replica loses them after
-- it has been absent for a lease, because all replicas are absent for a moment after an outage of the store. The field
-- "missed:REPLICA" of the buckets holds the time since when it has been absent.
local function time_left(replica)
  local field = 'missed:' .. replica
  if redis.call('EXISTS', ARGV[7] .. replica) == 1 then
    redis.call('HDEL', KEYS[1], field)
    return nil
  end
  local since = tonumber(redis.call('HGET', KEYS[1], field)) or math.huge
  if since > now then
    since = now
    redis.call('HSET', KEYS[1], field, string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[1], math.max(MINUTE, redis.call('PTTL', KEYS[1])))
  end
  return since + tonumber(ARGV[9]) - now
end

-- Frees places of replicas that have gone; returns the ms until the next ones are freed, 0 if none will be.
local function free_places()
  local soonest = math.huge
  local left = {[ARGV[8]] = math.huge}
  for _, place in ipairs(redis.call('ZRANGE', KEYS[2], 0, MOST_EXAMINED - 1)) do
    local replica = string.match(place, ' (.+)$') or ARGV[8]
    left[replica] = left[replica] or time_left(replica) or math.huge
    if left[replica] <= 0 then
      redis.call('ZREM', KEYS[2], place)
      redis.call('HDEL', KEYS[1], 'missed:' .. replica)
    else
      soonest = math.min(soonest, left[replica])
    end
  end
  return soonest < math.huge and math.ceil(soonest) or 0
end

local DAY = 86400000
local today = math.floor(now / DAY)
local spent = {0, 0}

-- Returns the day of the month, from 1, of a day since 1970 (the algorithm is Howard Hinnant's civil_from_days).
local function day_of_month(day)
  local of_era = (day + 719468) % 146097
  local year = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365
  )
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return of_year - math.floor((153 * math.floor((5 * of_year + 2) / 153) + 2) / 5) + 1
end

if ARGV[10] ~= '' or ARGV[11] ~= '' then
  local first = today - day_of_month(today) + 1
  local past = redis.call('HGETALL', ARGV[12])
  for at = 1, #past, 2 do
    if tonumber(past[at]) == today then
      spent[1] = tonumber(past[at + 1])
    end
    if tonumber(past[at]) >= first then
      spent[2] = spent[2] + past[at + 1]
    end
  end
  local following = first + 31
  local ends = {today + 1, following - day_of_month(following) + 1}
  for budget = 1, 2 do
    if ARGV[9 + budget] ~= '' and spent[budget] >= tonumber(ARGV[9 + budget]) and not repeated then
      refusing, wait = 3 + budget, ends[budget] * DAY - now
    end
  end
end

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if refusing == 0 and ARGV[3] ~= '' and not repeated then
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then
    wait = free_places()
    if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then
      refusing = 3
    else
      wait = 0
    end
  end
end

for bucket = 1, 2 do
  if ARGV[bucket] ~= '' then
    local known = tonumber(stored[bucket])
    full[bucket] = known and known > now and known < now + LONGEST_DEBT and known or now
    local over = full[bucket] + costs[bucket] * MINUTE / tonumber(ARGV[bucket]) - now - MINUTE
    -- Tolerates rounding errors below a millisecond.
    if refusing == 0 and over > 0.5 and not repeated then
      refusing, wait = bucket, math.ceil(over)
    end
  end
end

for bucket = 1, 2 do
  if full[bucket] then
    local limit = tonumber(ARGV[bucket])
    if refusing == 0 then
      full[bucket] = full[bucket] + costs[bucket] * MINUTE / limit
      redis.call(
        'HSET', KEYS[1], bucket == 1 and 'requests' or 'tokens', string.format('%.3f', full[bucket]),
        'at', string.format('%.0f', now)
      )
    end
    back[bucket] = math.max(0, math.ceil(full[bucket] - now))
    left[bucket] = math.max(0, math.floor((MINUTE - (full[bucket] - now)) * limit / MINUTE + 0.001))
  end
end
if refusing == 0 then
  redis.call('PEXPIRE', KEYS[1], math.max(MINUTE, back[1], back[2]) + 1000)
  if ARGV[1] ~= '' or ARGV[2] ~= '' or ARGV[3] ~= '' then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[6]), ARGV[5])
    redis.call('PEXPIRE', KEYS[2], ARGV[6])
  end
end
return {refusing, wait, left[1], back[1], left[2], back[2], spent[1], spent[2]}
