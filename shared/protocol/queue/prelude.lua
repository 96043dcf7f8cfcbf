-- Functions that several scripts share; put in front of each of them when it is loaded.

-- Bands of priority lie so far apart in the queue's scores that the tags inside a band (tokens) never fill it.
local BAND_WIDTH = 2 ^ 50

-- Lua's stack holds about 8,000 values, so a command with any number of arguments is sent in parts of this size.
local MOST_UNPACKED = 1000

-- Calls a command with a key and list[first] to list[last], in several calls where these are many. Returns the reply to
-- the last call.
local function call_with(command, key, list, first, last)
  local reply
  for at = first, last, MOST_UNPACKED do
    reply = redis.call(command, key, unpack(list, at, math.min(at + MOST_UNPACKED - 1, last)))
  end
  return reply
end

-- Returns a tag of fair queueing as it was stored, 1 where there is none or what is stored can be none.
local function tag_of(stored)
  local tag = tonumber(stored)
  return tag and tag >= 1 and tag < BAND_WIDTH and tag or 1
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
end

-- Wakes a worker; returns whether it listens. Its load is raised a little at once, so that a burst spreads before the
-- workers have claimed and told their true load. A worker without a subscription is dead, and leaves the list. payload
-- is that of the job which it is woken for, or nil: with it, the worker can begin before its claim is answered.
local function wake_this(load_key, channel_prefix, worker, payload)
  redis.call('ZINCRBY', load_key, 0.05, worker)
  if redis.call('PUBLISH', channel_prefix .. worker, payload and 'wake ' .. payload or 'wake') > 0 then
    return true
  end
  redis.call('ZREM', load_key, worker)
  return false
end

-- Wakes the least loaded worker that has a free slot and listens, any of those that are loaded alike; returns it, or
-- nil if there is none.
local function wake(load_key, channel_prefix, payload)
  for _ = 1, 8 do
    local least = redis.call('ZRANGEBYSCORE', load_key, '-inf', '(1', 'WITHSCORES', 'LIMIT', 0, 1)
    if #least == 0 then
      return nil
    end
    local alike = redis.call('ZCOUNT', load_key, '-inf', least[2])
    local worker = least[1]
    if alike > 1 then
      local any = tonumber(redis.call('TIME')[2]) % alike
      worker = redis.call('ZRANGE', load_key, any, any)[1]
    end
    if wake_this(load_key, channel_prefix, worker, payload) then
      return worker
    end
  end
end

-- Deletes a job's payload and state. The last job of a shared request (see enqueue.lua) deletes that, too.
local function drop(job, payload_prefix, state_prefix)
  redis.call('DEL', payload_prefix .. job, state_prefix .. job)
  local request = string.match(job, '^(.+):%d+$')
  if request then
    local key = payload_prefix .. 'request:' .. request
    if redis.pcall('HDEL', key, job) == 1 and redis.call('HLEN', key) == 1 then
      redis.call('DEL', key)
    end
  end
end

local function forget(job, payload_prefix, state_prefix, journal_prefix)
  drop(job, payload_prefix, state_prefix)
  redis.call('DEL', journal_prefix .. job)
end

-- Puts a claimed job back at its old place in the queue, or drops it when nobody waits for it, or its state can't be
-- read: the API replica that waits for it finds it gone.
local function requeue(job, queue_key, inflight_key, payload_prefix, state_prefix, journal_prefix)
  redis.call('ZREM', inflight_key, job)
  local claim = redis.pcall('HMGET', state_prefix .. job, 'score', 'cancelled')
  local score = tonumber(claim[1])
  if claim[2] or not score or score ~= score then
    forget(job, payload_prefix, state_prefix, journal_prefix)
    return false
  end
  redis.call('HDEL', state_prefix .. job, 'worker')
  redis.call('ZADD', queue_key, string.format('%.17g', score), job)
  return true
end

-- Moves the virtual time of each band to the tag of its newest claimed job; a job that returned to the queue is older.
-- claimed: ids and scores in turn, by rising score. Never fails: its caller has taken them out of the queue.
local function advance(shares_key, claimed)
  local newest = {}
  for at = 2, #claimed, 2 do
    local band = math.floor(tonumber(claimed[at]) / BAND_WIDTH)
    newest[string.format('time:%.0f', band)] = tonumber(claimed[at]) - band * BAND_WIDTH
  end
  for field, tag in pairs(newest) do
    if tag > tag_of(redis.pcall('HGET', shares_key, field)) then
      redis.pcall('HSET', shares_key, field, string.format('%.0f', tag))
    end
  end
end
