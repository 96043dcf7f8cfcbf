#!lua flags=allow-oom
-- Corrects a tenant's finish tag once the usage of a request is known, and counts its reasoning, which workers cannot tell
-- from other text. A repeated call does nothing.
-- KEYS: see the prelude, fair_queue, the mark that the request was corrected
-- ARGV: priority class, account, tokens used beyond the estimate (negative if fewer), TTL (ms) of the mark, reasoning (a
--       UsageCounts), weight of the key, weight of its team
if not redis.call('SET', KEYS[7], '', 'NX', 'PX', ARGV[4]) then
  return
end
local finish = finish_field(ARGV[1], ARGV[2])
local past = redis.call('HMGET', KEYS[6], 'time:' .. ARGV[1], finish)
if past[2] then
  local weight = weight_of(KEYS[6], ARGV[1], ARGV[2], tonumber(ARGV[6]), tonumber(ARGV[7]))
  local tag = math.max(tag_of(past[1]), tag_of(past[2]) + ARGV[3] / weight)
  redis.call('HSET', KEYS[6], finish, string.format('%.0f', tag))
end
add_usage(kind_of(ARGV[1]), ARGV[2], ARGV[5])
