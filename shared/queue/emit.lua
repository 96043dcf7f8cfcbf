-- Publishes one step's frames and journals their events, and ends the jobs that finished.
-- A worker that no longer holds one of the jobs gets their ids back, and nothing happens: it drops
-- them and tries again. So no stale attempt ever reaches a client (fencing).
-- KEYS: inflight, load
-- ARGV: payload prefix, state prefix, journal prefix, worker, load ('' leaves it), journal TTL (ms), TTL after the
--       end (ms), number of frames, (channel, frame)..., then for each job: id, attempt, final (0/1),
--       number of events, events...
-- Returns {1, receivers of each frame...} or {0, stale ids...}.
local frames = tonumber(ARGV[8])
local first = 9 + 2 * frames

local stale = {0}
local at = first
while at <= #ARGV do
  local claim = redis.call('HMGET', ARGV[2] .. ARGV[at], 'attempt', 'worker')
  if claim[1] ~= ARGV[at + 1] or claim[2] ~= ARGV[4] then
    stale[#stale + 1] = ARGV[at]
  end
  at = at + 4 + tonumber(ARGV[at + 3])
end
if #stale > 1 then
  return stale
end

at = first
while at <= #ARGV do
  local job, final, events = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local journal = ARGV[3] .. job
  if events > 0 then
    local length = redis.call('RPUSH', journal, unpack(ARGV, at + 4, at + 3 + events))
    if length == events then
      redis.call('PEXPIRE', journal, ARGV[6])
    end
  end
  if final == '1' then
    redis.call('ZREM', KEYS[1], job)
    redis.call('DEL', ARGV[1] .. job, ARGV[2] .. job)
    redis.call('PEXPIRE', journal, ARGV[7])
  end
  at = at + 4 + events
end
if ARGV[5] ~= '' then
  redis.call('ZADD', KEYS[2], 'XX', ARGV[5], ARGV[4])
end
local receivers = {1}
for frame = 1, frames do
  receivers[frame + 1] = redis.call('PUBLISH', ARGV[7 + 2 * frame], ARGV[8 + 2 * frame])
end
return receivers
