#!lua flags=allow-oom
-- Renews a worker's leases.
-- KEYS: inflight
-- ARGV: state prefix, worker, lease (ms), (id, attempt)...
-- Returns the ids that the worker must stop computing: claimed by another, cancelled, or with an unreadable state.
local lease_end = string.format('%.0f', now_ms() + tonumber(ARGV[3]))
local stop = {}
for at = 4, #ARGV, 2 do
  local claim = redis.pcall('HMGET', ARGV[1] .. ARGV[at], 'attempt', 'worker', 'cancelled')
  if claim[1] ~= ARGV[at + 1] or claim[2] ~= ARGV[2] or claim[3] then
    stop[#stop + 1] = ARGV[at]
  end
  if claim[1] == ARGV[at + 1] and claim[2] == ARGV[2] then
    redis.call('ZADD', KEYS[1], lease_end, ARGV[at])
  end
end
return stop
