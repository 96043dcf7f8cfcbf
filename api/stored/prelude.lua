-- Shared functions of the scripts of stored responses, prepended to each script when it is loaded, after the prefixes of
-- keys: RECORDS, INDEXES, RUNNING and KEPT (journals of background responses that have ended).
-- KEYS of each script: sizes, owners, expiry, index, running, record (the last three of one owner)
-- ARGV of each script: id, owner, TTL (ms) of a response that has ended, TTL (ms) of one that runs, maximum of responses
--                      and of bytes per owner, maximum of bytes of all owners, then its own
-- A response counts with all that it keeps in the store: the names and values of its record's fields, and the events in
-- its journals. Events of running responses are counted once per second (see create.lua), and when the response ends.
local id, owner, ttl, running_ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local max_count, max_bytes, max_total = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local OWN = 8 -- index of the first argument of the script itself
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local seconds = string.format('%d.%06d', time[1], time[2])

local function record_of(of, response)
  return RECORDS .. of .. ':' .. response
end

local function bytes_of(response)
  return tonumber(string.match(redis.call('HGET', KEYS[1], response) or '', '^%d+') or 0)
end

-- Sets the number of bytes that a response counts with; 0 when it is gone.
local function count(of, response, bytes)
  local before = bytes_of(response)
  if bytes == before then
    return
  end
  local change = string.format('%.0f', bytes - before)
  if bytes > 0 then
    redis.call('HSET', KEYS[1], response, string.format('%.0f ', bytes) .. of)
  else
    redis.call('HDEL', KEYS[1], response)
  end
  if redis.call('HINCRBY', KEYS[1], '', change) == 0 then
    redis.call('HDEL', KEYS[1], '')
  end
  if tonumber(redis.call('ZINCRBY', KEYS[2], change, of)) <= 0 then
    redis.call('ZREM', KEYS[2], of)
    redis.call('HDEL', KEYS[1], 'at ' .. of)
  end
end

-- Returns an iterator over the jobs of a response that has no document.
local function jobs_of(record)
  local jobs = redis.call('HGET', record, 'jobs')
  return string.gmatch(jobs or '', '%S+')
end

local function delete(of, response)
  local record = record_of(of, response)
  redis.call('DEL', record, KEPT .. of .. ':' .. response)
  redis.call('ZREM', INDEXES .. of, response)
  redis.call('ZREM', RUNNING .. of, response)
  redis.call('ZREM', KEYS[3], response)
  count(of, response, 0)
end

-- Deletes what has expired.
local function delete_expired()
  for _, response in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 100)) do
    local of = string.match(redis.call('HGET', KEYS[1], response) or '', '^%d+ (.*)$')
    if of then
      delete(of, response)
    else
      redis.call('ZREM', KEYS[3], response)
    end
  end
end

-- Evicts an owner's oldest response that has ended, but not this one; returns whether there was one.
local function evict_of(of)
  for _, response in ipairs(redis.call('ZRANGE', INDEXES .. of, 0, 1)) do
    if response ~= id then
      delete(of, response)
      return true
    end
  end
  return false
end

-- Evicts from the owner with the most bytes that has a response that has ended.
local function evict()
  for _, of in ipairs(redis.call('ZREVRANGE', KEYS[2], 0, -1)) do
    if evict_of(of) then
      return true
    end
  end
  return false
end

-- Returns whether a number of new responses with some bytes together fit into the owner's share.
local function fits(new, bytes)
  return redis.call('ZCARD', KEYS[4]) + redis.call('ZCARD', KEYS[5]) + new <= max_count
    and (tonumber(redis.call('ZSCORE', KEYS[2], owner)) or 0) + bytes <= max_bytes
end

-- Evicts responses that have ended until new ones fit; returns whether they do.
local function make_room(new, bytes)
  while not fits(new, bytes) do
    if not evict_of(owner) then
      return false
    end
  end
  while tonumber(redis.call('HGET', KEYS[1], '') or 0) + bytes > max_total do
    if not evict() then
      return false
    end
  end
  return true
end
