#!lua flags=allow-oom
-- Publishes one step's frames, appends their events to the journals, and deletes the jobs that have ended.
-- If the worker no longer holds the lease of some of the jobs, nothing is published and their ids are returned. The
-- worker drops them and retries. Stale attempts therefore never reach a client (fencing).
-- KEYS: inflight, load
-- ARGV: payload prefix, state prefix, journal prefix, worker, journal TTL (ms), journal TTL after the end (ms), load
--       ('' for unchanged), number of frames, number of jobs with one non-terminal event, (channel, frame)...,
--       (id, attempt, event)... of those jobs, then for each other job: id, attempt, final (0/1), number of events,
--       events...
-- Returns {1, receivers of each frame...} or {0, stale ids...}.
--
-- Keys that hold another type of value are skipped (redis.pcall), so that one of them does not block all jobs of the
-- worker. A job whose state is such a key counts as stale.
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
