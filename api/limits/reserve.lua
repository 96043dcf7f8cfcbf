-- Reserves one request of an API key, or returns the exceeded limit and how long to wait.
-- Rates use the generic cell rate algorithm: a bucket is stored as the time at which it will be full again. A bucket
-- holds the allowance of one minute.
-- KEYS: buckets, admitted
-- ARGV: requests per minute, tokens per minute, concurrent requests (each '' if unlimited), tokens of this request,
--       its reservation ("NAME REPLICA"), maximum duration of a request (ms), prefix of replicas' registry records,
--       this replica, lease (ms)
-- A reservation that is there already was made by this call, whose reply was lost: nothing is counted again.
-- Returns {0 or the exceeded limit (1 requests, 2 tokens, 3 concurrency), ms to wait,
--          remaining requests, ms until the bucket is full, remaining tokens, ms until the bucket is full}.
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

redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if ARGV[3] ~= '' and not repeated then
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
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[6]), ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
return {refusing, wait, left[1], back[1], left[2], back[2]}
