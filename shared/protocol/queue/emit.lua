#!lua flags=allow-oom
-- Publishes one step's frames, appends their events to the journals, and ends the jobs that have ended.
-- If the worker no longer holds the lease of some of the jobs, nothing is published and their ids are returned. The
-- worker drops them and retries. Stale attempts therefore never reach a client (fencing).
-- KEYS: see the prelude
-- ARGV: worker, load ('' for unchanged), number of frames, number of jobs with one non-terminal event,
--       (channel, frame)..., (id, attempt, event)... of those jobs, then for each other job: id, attempt, what it used if
--       it ends with the last event (a UsageCounts, else ''), number of events, events...
-- Returns {1, receivers of each frame...} or {0, stale ids...}.
-- The journal of an ended job is kept as long as a stored response needs it, whose document may have to be made from it
-- (see keys.journal_needed).
local call = redis.call
local worker = ARGV[1]
local frames = tonumber(ARGV[3])
local first = 5 + 2 * frames
local rest = first + 3 * tonumber(ARGV[4])

local ARGV, arguments = ARGV, #ARGV -- local, because this is the hot path
local jobs, attempts, total = {}, {}, 0
for at = first, rest - 1, 3 do
  total = total + 1
  jobs[total], attempts[total] = ARGV[at], ARGV[at + 1]
end
local at = rest
while at <= arguments do
  total = total + 1
  jobs[total], attempts[total] = ARGV[at], ARGV[at + 1]
  at = at + 4 + tonumber(ARGV[at + 3])
end
local stale, held = {0}, {}
local claims = read_claims(jobs)
for number = 1, total do
  local attempt, claim = attempts[number], claims[number]
  if claim ~= held[attempt] then
    held[attempt] = claim_of(attempt, worker)
    if not is_held(claim, held[attempt]) then
      stale[#stale + 1] = jobs[number]
    end
  end
end
if #stale > 1 then
  return stale
end

local function publish()
  if ARGV[2] ~= '' then
    call('ZADD', LOAD, 'XX', ARGV[2], worker)
  end
  local receivers = {1}
  for frame = 1, frames do
    receivers[frame + 1] = call('PUBLISH', ARGV[3 + 2 * frame], ARGV[4 + 2 * frame])
  end
  return receivers
end

for at = first, rest - 1, 3 do
  local journal = JOURNAL .. ARGV[at]
  if call('RPUSH', journal, ARGV[at + 2]) == 1 then
    call('PEXPIRE', journal, JOB_TTL)
  end
end
if rest > arguments then
  return publish()
end
-- prelude
at = rest
while at <= arguments do
  local job, usage, events = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local journal = JOURNAL .. job
  if events > 0 then
    if call_with('RPUSH', journal, ARGV, at + 4, at + 3 + events) == events then
      call('PEXPIRE', journal, JOB_TTL)
    end
  end
  if usage ~= '' then
    drop(job, usage)
    call('PEXPIRE', journal, math.max(LINGER, call('PTTL', NEEDED .. job)))
  end
  at = at + 4 + events
end
return publish()
