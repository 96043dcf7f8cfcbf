#!lua flags=allow-oom
-- Renews a worker's leases.
-- KEYS: see the prelude
-- ARGV: worker, lease (ms), (id, attempt)...
-- Returns the ids that the worker must stop computing: claimed by another, or cancelled.
local lease_end = string.format('%.0f', now_ms() + tonumber(ARGV[2]))
local jobs = {}
for at = 3, #ARGV, 2 do
  jobs[#jobs + 1] = ARGV[at]
end
local stop, renewed, held = {}, {}, {}
for at, stored in ipairs(read_claims(jobs)) do
  local attempt = ARGV[2 + 2 * at]
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
