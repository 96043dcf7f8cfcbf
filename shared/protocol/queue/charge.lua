#!lua flags=allow-oom
-- Corrects a tenant's finish tag once the usage of a request is known, and counts its reasoning, which workers cannot tell
-- from other text. A repeated call does nothing.
-- KEYS: see the prelude, fair_queue, the mark that the request was corrected
-- ARGV: priority class, account, tokens (divided by the tenant's weight) used beyond the estimate (negative if fewer), TTL (ms) of the mark,
--       reasoning (a UsageCounts)
if not redis.call('SET', KEYS[7], '', 'NX', 'PX', ARGV[4]) then
  return
end
local finish_field = 'finish:' .. ARGV[1] .. ':' .. tenant_of(ARGV[2])
local past = redis.call('HMGET', KEYS[6], 'time:' .. ARGV[1], finish_field)
if past[2] then
  local tag = math.max(tag_of(past[1]), tag_of(past[2]) + tonumber(ARGV[3]))
  redis.call('HSET', KEYS[6], finish_field, string.format('%.0f', tag))
end
add_usage(kind_of(ARGV[1]), ARGV[2], ARGV[5])
