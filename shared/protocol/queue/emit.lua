#!lua flags=allow-oom
-- Publishes one step's frames, appends its events to the worker's log of steps or to journals, and ends the jobs that have
-- ended.
-- If the worker no longer holds the lease of some of the jobs, nothing is published and they are returned. The worker
-- drops them and retries. Stale attempts therefore never reach a client (fencing). The claims of jobs whose events are
-- logged were checked by an earlier step. The worker still holds them if its last step is the one that it knows: it is
-- forgotten when the worker loses a job (see requeue()), and an older one if the store has lost its last writes. Processes of
-- the last release do not forget it, so after a pause all claims are checked, too.
-- KEYS: see the prelude
-- ARGV: worker, load ('' for unchanged), number of frames, number of the worker's last step ('' if all its jobs
--       follow, with all events of the log), number of this one ('' if it holds no job afterwards), value of the log
--       (see journal_steps(); may be ''), (channel, frame)..., then for each job whose events are not logged: id, attempt,
--       what it used if it ends with the last event (a UsageCounts, else ''), number of events, events...
-- Returns {length of the log, receivers of each frame...} or {-1, (id, attempt)... of the jobs that are lost}; none if
-- the last step is another.
-- The journal of an ended job is kept as long as a stored response needs it, whose document may have to be made from it
-- (see keys.journal_needed).
local call, ARGV = redis.call, ARGV -- local, because this is the hot path
-- Time (ms) since the last step after which all claims are checked: less than a lease.
local MAX_PAUSE = 500
local worker, frames, last_step = ARGV[1], tonumber(ARGV[3]), 'worker ' .. ARGV[1]
local first = 7 + 2 * frames
local now = now_ms()
if ARGV[4] ~= '' then
  local number, at = string.match(call('HGET', CLAIMS, last_step) or '', '^(%d+) (%d+)$')
  if number ~= ARGV[4] or math.abs(now - at) > MAX_PAUSE then
    return {-1}
  end
end

local function publish()
  if ARGV[2] ~= '' then
    call('ZADD', LOAD, 'XX', ARGV[2], worker)
  end
  if ARGV[5] == '' then
    call('HDEL', CLAIMS, last_step)
  else
    call('HSET', CLAIMS, last_step, string.format('%s %.0f', ARGV[5], now))
  end
  local log = STEPS .. worker
  local reply = {ARGV[6] == '' and call('LLEN', log) or call('RPUSH', log, ARGV[6])}
  if reply[1] == 1 then
    call('PEXPIRE', log, JOB_TTL)
  end
  for frame = 1, frames do
    reply[frame + 1] = call('PUBLISH', ARGV[5 + 2 * frame], ARGV[6 + 2 * frame])
  end
  return reply
end

if not ARGV[first] then
  return publish()
end
-- prelude
local jobs, attempts, at = {}, {}, first
while ARGV[at] do
  jobs[#jobs + 1], attempts[#attempts + 1] = ARGV[at], ARGV[at + 1]
  at = at + 4 + tonumber(ARGV[at + 3])
end
local stale, held = {-1}, {}
for number, claim in ipairs(read_claims(jobs)) do
  local attempt = attempts[number]
  held[attempt] = held[attempt] or claim_of(attempt, worker)
  if not is_held(claim, held[attempt]) then
    stale[#stale + 1], stale[#stale + 2] = jobs[number], attempt
  end
end
if #stale > 1 then
  return stale
end

at = first
while ARGV[at] do
  local job, usage, events = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  journalize(job, ARGV, at + 4, at + 3 + events)
  if usage ~= '' then
    drop(job, usage)
    call('PEXPIRE', JOURNAL .. job, math.max(LINGER, call('PTTL', NEEDED .. job)))
  end
  at = at + 4 + events
end
if ARGV[4] == '' then
  call('DEL', STEPS .. worker)
end
return publish()
