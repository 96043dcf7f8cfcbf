#!lua flags=allow-oom
-- Publishes one step's frames and journals their events, and ends the jobs that finished.
-- A worker that no longer holds one of the jobs gets their ids back, and nothing happens: it drops
-- them and tries again. So no stale attempt ever reaches a client (fencing).
-- KEYS: inflight, load
-- ARGV: payload prefix, state prefix, journal prefix, worker, journal TTL (ms), TTL after the end (ms), load ('' leaves
--       it), number of frames, number of jobs that have one event and go on, (channel, frame)...,
--       (id, attempt, event)... of those jobs, then for each other job: id, attempt, final (0/1), number of events,
--       events...
-- Returns {1, receivers of each frame...} or {0, stale ids...}.
--
-- What can't be read or written because a key holds another type of value is passed over (redis.pcall): one such key
-- must not keep the worker from publishing for all its jobs. A claim in such a key is stale.
local call = redis.call
local payload_prefix, state_prefix, journal_prefix, worker = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local frames = tonumber(ARGV[8])
local first = 10 + 2 * frames
local rest = first + 3 * tonumber(ARGV[9])

local stale = {0}
local function check(at)
  local claim = redis.pcall('HMGET', state_prefix .. ARGV[at], 'attempt', 'worker')
  if claim[1] ~= ARGV[at + 1] or claim[2] ~= worker then
    stale[#stale + 1] = ARGV[at]
  end
end
for at = first, rest - 1, 3 do
  check(at)
end
local at = rest
while at <= #ARGV do
  check(at)
  at = at + 4 + tonumber(ARGV[at + 3])
end
if #stale > 1 then
  return stale
end

for at = first, rest - 1, 3 do
  local journal = journal_prefix .. ARGV[at]
  if redis.pcall('RPUSH', journal, ARGV[at + 2]) == 1 then
    call('PEXPIRE', journal, ARGV[5])
  end
end
at = rest
while at <= #ARGV do
  local job, final, events = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local journal = journal_prefix .. job
  if events > 0 then
    local pushed, length = pcall(call_with, 'RPUSH', journal, ARGV, at + 4, at + 3 + events)
    if pushed and length == events then
      call('PEXPIRE', journal, ARGV[5])
    end
  end
  if final == '1' then
    redis.pcall('ZREM', KEYS[1], job)
    drop(job, payload_prefix, state_prefix)
    call('PEXPIRE', journal, ARGV[6])
  end
  at = at + 4 + events
end
if ARGV[7] ~= '' then
  redis.pcall('ZADD', KEYS[2], 'XX', ARGV[7], worker)
end
local receivers = {1}
for frame = 1, frames do
  receivers[frame + 1] = call('PUBLISH', ARGV[8 + 2 * frame], ARGV[9 + 2 * frame])
end
return receivers
