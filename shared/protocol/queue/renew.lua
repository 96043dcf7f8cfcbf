#!lua flags=allow-oom
-- Renews a worker's leases, and its entry in the hash of serving workers.
-- KEYS: see the prelude
-- ARGV: worker, lease (ms), the end of its entry ("CACHES DIGEST"; '' if it does not serve), (id, attempt)...
-- Returns the ids that the worker must stop computing: claimed by another, or cancelled.
local lease_end = string.format('%.0f', now_ms() + tonumber(ARGV[2]))
if ARGV[3] == '' then
  redis.call('HDEL', SERVING, ARGV[1])
elseif redis.call('HSET', SERVING, ARGV[1], string.format('%.0f %s %s', now_ms(), ARGV[2], ARGV[3])) == 1 then
  -- A new worker removes those that have gone.
  local entries = redis.call('HGETALL', SERVING)
  for at = 1, #entries, 2 do
    if not parse_serving(entries[at + 1]) then
      redis.call('HDEL', SERVING, entries[at])
    end
  end
end
redis.call('PEXPIRE', SERVING, JOB_TTL)
local jobs = {}
for at = 4, #ARGV, 2 do
  jobs[#jobs + 1] = ARGV[at]
end
local stop, renewed, held = {}, {}, {}
for at, stored in ipairs(read_claims(jobs)) do
  local attempt = ARGV[3 + 2 * at]
  local claim = held[attempt] or claim_of(attempt, ARGV[1])
  held[attempt] = claim
  if stored ~= claim then
    stop[#stop + 1] = jobs[at]
  end
  if is_held(stored, claim) then
    renewed[#renewed + 1], renewed[#renewed + 2] = lease_end, jobs[at]
  end
end
call_with('ZADD', INFLIGHT, renewed, 1, #renewed)
return stop
