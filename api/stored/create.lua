#!lua
-- Stores the record of an accepted request, whose response has no document yet.
-- KEYS: see the prelude
-- ARGV: see the prelude, then the number of measured journals ('' if none was measured), (response, job, events that were
--       counted before, events since, their bytes)... of these, then fields and values of the record
-- Returns 1, 0 if responses that run leave no room, or -1 if the record alone is too large; where events of running
-- responses must be counted first, {model, response, job, events that were counted}... of what is to be measured.
-- The fields 'counted:JOB' of a record are the numbers of events that were counted, and 'counted' is their bytes; they do
-- not count themselves.
if redis.call('EXISTS', KEYS[6]) == 1 then
  return 1 -- the command was repeated
end
delete_expired()
local throttle = 'at ' .. owner
local last = tonumber(redis.call('HGET', KEYS[1], throttle) or 0)
if ARGV[OWN] == '' and (last > now or now - last >= 1000) then
  local journals = {}
  for _, response in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    local record = record_of(owner, response)
    for job in jobs_of(record) do
      local known = redis.call('HGET', record, 'counted:' .. job) or '0'
      for _, part in ipairs({redis.call('HGET', record, 'model') or '', response, job, known}) do
        journals[#journals + 1] = part
      end
    end
  end
  if #journals > 0 then
    return journals
  end
end
local FIELDS = OWN + 1 + 5 * (tonumber(ARGV[OWN]) or 0)
for at = OWN + 1, FIELDS - 1, 5 do
  local response, record, field = ARGV[at], record_of(owner, ARGV[at]), 'counted:' .. ARGV[at + 1]
  local known, events, bytes = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local is_news = redis.call('HEXISTS', record, 'jobs') == 1 and tonumber(redis.call('HGET', record, field) or 0) == known
  if events > 0 and is_news then
    redis.call('HSET', record, field, known + events)
    redis.call('HINCRBY', record, 'counted', bytes)
    count(owner, response, bytes_of(response) + bytes)
  end
end
redis.call('HSET', KEYS[1], throttle, now)
local bytes = 0
for at = FIELDS, #ARGV do
  bytes = bytes + #ARGV[at]
end
if bytes > math.min(max_bytes, max_total) then
  return -1
end
if not fits(1, bytes) then
  -- Checked first, so that a refused request evicts nothing.
  local running = bytes
  for _, response in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
    running = running + bytes_of(response)
  end
  if running > max_bytes or redis.call('ZCARD', KEYS[5]) >= max_count then
    return 0
  end
end
if not make_room(1, bytes) then
  return 0
end
redis.call('HSET', KEYS[6], unpack(ARGV, FIELDS))
redis.call('PEXPIRE', KEYS[6], running_ttl)
redis.call('ZADD', KEYS[5], seconds, id)
redis.call('ZADD', KEYS[3], now + running_ttl, id)
count(owner, id, bytes)
-- The bookkeeping outlives all that it counts: a document may be added, and expires a TTL later.
for key = 1, 5 do
  redis.call('PEXPIRE', KEYS[key], running_ttl + ttl)
end
return 1
