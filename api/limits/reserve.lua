-- Takes one request of an API key out of its limits, or tells which limit refuses it and for how long.
-- The rates are kept by the generic cell rate algorithm: all that is stored of a bucket is the time at which it will be
-- full again. A bucket holds a whole minute's allowance.
-- KEYS: buckets, admitted
-- ARGV: requests a minute, tokens a minute, requests at a time (each '' where unlimited), tokens of this request,
--       its reservation ("NAME REPLICA"), most time that it can take (ms), prefix of replicas' presence, this replica,
--       lease (ms)
-- Returns {0 or the refusing limit (1 requests, 2 tokens, 3 concurrency), ms until it may be tried again,
--          requests left, ms until all are back, tokens left, ms until all are back}.
local MINUTE = 60000

-- Time (ms) of which no key can be so far in debt: what is stored then is garbage.
local LONGEST_DEBT = 86400000
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local stored = redis.call('HMGET', KEYS[1], 'requests', 'tokens')
local costs = {1, tonumber(ARGV[4])}
local full, left, back = {}, {-1, -1}, {0, 0}
local refusing, wait = 0, 0

-- Places that are examined at a time, the oldest first.
local MOST_EXAMINED = 256

-- Returns for how long (ms) another replica keeps its places: nil while it is present. It loses them when it has been
-- missed for a lease, as an outage of the store makes all replicas absent for a moment. Since when it has been missed is
-- in the field "missed:REPLICA" of the buckets.
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

-- Frees places of replicas that are gone; returns in how many ms the next ones will be freed, 0 where none will.
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

if ARGV[3] ~= '' then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
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
    -- A fraction of a millisecond is the dust of divisions.
    if refusing == 0 and over > 0.5 then
      refusing, wait = bucket, math.ceil(over)
    end
  end
end

for bucket = 1, 2 do
  if full[bucket] then
    local limit = tonumber(ARGV[bucket])
    if refusing == 0 then
      full[bucket] = full[bucket] + costs[bucket] * MINUTE / limit
      redis.call('HSET', KEYS[1], bucket == 1 and 'requests' or 'tokens', string.format('%.3f', full[bucket]))
    end
    back[bucket] = math.max(0, math.ceil(full[bucket] - now))
    left[bucket] = math.max(0, math.floor((MINUTE - (full[bucket] - now)) * limit / MINUTE + 0.001))
  end
end
if refusing == 0 then
  redis.call('PEXPIRE', KEYS[1], math.max(MINUTE, back[1], back[2]) + 1000)
  if ARGV[3] ~= '' then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[6]), ARGV[5])
    redis.call('PEXPIRE', KEYS[2], ARGV[6])
  end
end
return {refusing, wait, left[1], back[1], left[2], back[2]}
