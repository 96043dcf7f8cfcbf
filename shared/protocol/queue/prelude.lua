-- Shared functions, prepended to each script when it is loaded.

-- Distance between the bands in the queue's scores; larger than any tag (tokens) within a band.
local BAND_WIDTH = 2 ^ 50

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

-- Returns a stored fair queueing tag; 1 when it is missing or invalid.
local function tag_of(stored)
  local tag = tonumber(stored)
  return tag and tag >= 1 and tag < BAND_WIDTH and tag or 1
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end

-- Wakes a worker; returns whether it is subscribed. Raises its load slightly at once, so that a burst spreads before
-- the workers report their real load. A worker without a subscription is dead and is removed from the list. payload is
-- that of the new job, or nil; with it, the worker can prefetch the job while its claim is under way.
local function wake_this(load_key, channel_prefix, worker, payload)
  redis.call('ZINCRBY', load_key, 0.05, worker)
  if redis.call('PUBLISH', channel_prefix .. worker, payload and 'wake ' .. payload or 'wake') > 0 then
    return true
  end
  redis.call('ZREM', load_key, worker)
  return false
end

-- Wakes the least loaded worker with a free slot, chosen at random among equals. Returns the worker, or nil if there is
-- none.
local function wake(load_key, channel_prefix, payload)
  for _ = 1, 8 do
    local least = redis.call('ZRANGEBYSCORE', load_key, '-inf', '(1', 'WITHSCORES', 'LIMIT', 0, 1)
    if #least == 0 then
      return nil
    end
    local equal = redis.call('ZCOUNT', load_key, '-inf', least[2])
    local worker = least[1]
    if equal > 1 then
      local any = tonumber(redis.call('TIME')[2]) % equal
      worker = redis.call('ZRANGE', load_key, any, any)[1]
    end
    if wake_this(load_key, channel_prefix, worker, payload) then
      return worker
    end
  end
end

-- The images of unfinished requests: a hash of sums of bytes, and a sorted set of "REQUEST BYTES BATCH TENANT", BATCH
-- being 1 for lines of batches and 0 for others, by the time (ms) at which the request expires.
local MEDIA, MEDIA_REQUESTS = 'vinoqueue:media', 'vinoqueue:media-requests'

-- Returns the fields of the sums for all requests, for all of the same kind (lines of batches, or others), and for those
-- of the same kind and tenant.
local function media_fields(is_batch, tenant)
  local kind = is_batch and 'batch' or 'other'
  return {'all', kind, kind .. ':' .. tenant}
end

-- Adds the bytes of an entry to the sums, or subtracts them (sign -1).
local function add_to_media(entry, sign)
  local bytes, batch, tenant = string.match(entry, '^%S+ (%d+) (%d) (.*)$')
  for _, field in ipairs(media_fields(batch == '1', tenant)) do
    if redis.call('HINCRBY', MEDIA, field, string.format('%.0f', sign * tonumber(bytes))) <= 0 then
      redis.call('HDEL', MEDIA, field)
    end
  end
end

-- Stops counting the images of a request. Counts nothing twice, whatever ends the request, and how often.
local function uncount_images(entry)
  if redis.pcall('ZREM', MEDIA_REQUESTS, entry) == 1 then
    pcall(add_to_media, entry, -1)
  end
end

-- Deletes a job's payload and state, and with the last job of a shared request (see enqueue.lua) the request and its
-- images.
local function drop(job, payload_prefix, state_prefix)
  redis.call('DEL', payload_prefix .. job, state_prefix .. job)
  local request = string.match(job, '^(.+):%d+$')
  if request then
    local key = payload_prefix .. 'request:' .. request
    if redis.pcall('HDEL', key, job) == 1 then
      local images, counted = unpack(redis.call('HMGET', key, 'images', 'counted'))
      -- Beside the jobs, it has a field with the request, and with images one for each and two more.
      if redis.call('HLEN', key) == (images and 3 + images or 1) then
        redis.call('DEL', key)
        if counted then
          uncount_images(counted)
        end
      end
    end
  end
end

-- How long (ms) the journal of a cancelled job is kept.
local CANCELLED_TTL = 60000

-- Ends a cancelled job, which no worker holds: appends its terminal event to its journal and deletes everything else.
local function end_cancelled(job, event, payload_prefix, state_prefix, journal_prefix)
  drop(job, payload_prefix, state_prefix)
  redis.pcall('RPUSH', journal_prefix .. job, event)
  redis.call('PEXPIRE', journal_prefix .. job, CANCELLED_TTL)
end

-- Deletes everything about a job.
local function forget(job, payload_prefix, state_prefix, journal_prefix)
  drop(job, payload_prefix, state_prefix)
  redis.call('DEL', journal_prefix .. job)
end

-- Returns a claimed job to its old position in the queue, and notes why. Ends it instead when it is cancelled, and
-- deletes it when its state is unreadable; its API replica then notices the missing payload.
local function requeue(job, queue_key, inflight_key, payload_prefix, state_prefix, journal_prefix, cause)
  redis.call('ZREM', inflight_key, job)
  local claim = redis.pcall('HMGET', state_prefix .. job, 'score', 'cancelled')
  local score = tonumber(claim[1])
  if claim[2] then
    end_cancelled(job, claim[2], payload_prefix, state_prefix, journal_prefix)
    return false
  end
  if not score or score ~= score then
    forget(job, payload_prefix, state_prefix, journal_prefix)
    return false
  end
  redis.call('HDEL', state_prefix .. job, 'worker')
  redis.call('HSET', state_prefix .. job, 'cause', cause)
  redis.call('ZADD', queue_key, string.format('%.17g', score), job)
  return true
end

-- Advances the virtual time of each band to the tag of its newest claimed job. Jobs that returned to the queue have
-- older tags and do not move it back. claimed: alternating ids and scores, by ascending score. Must not fail, because
-- the jobs are out of the queue already.
local function advance(fair_queue_key, claimed)
  local newest = {}
  for at = 2, #claimed, 2 do
    local band = math.floor(tonumber(claimed[at]) / BAND_WIDTH)
    newest[string.format('time:%.0f', band)] = tonumber(claimed[at]) - band * BAND_WIDTH
  end
  for field, tag in pairs(newest) do
    if tag > tag_of(redis.pcall('HGET', fair_queue_key, field)) then
      redis.pcall('HSET', fair_queue_key, field, string.format('%.0f', tag))
    end
  end
end
