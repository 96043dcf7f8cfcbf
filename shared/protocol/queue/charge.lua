#!lua flags=allow-oom
-- Corrects a tenant's finish tag once the usage of a request is known, and notes what workers do not: its reasoning, which
-- they cannot tell from other text, and jobs that were cancelled while they waited for another attempt. A repeated call
-- does nothing.
-- A token has the weight that it had when the request was enqueued: since then, keys of its team have come and gone. What
-- a tenant used beyond the estimate while no other one waited has delayed nobody, and costs nothing.
-- KEYS: see the prelude, fair_queue, the weight of the request, by default 1; empty once the request was corrected, ended
-- ARGV: priority class, account, tokens used beyond the estimate (negative if fewer), TTL (ms) of the mark that the
--       request was corrected, usage (a UsageCounts)
local weight = redis.call('GET', KEYS[8]) or 1
if weight == '' then
  return
end
redis.call('SET', KEYS[8], '', 'PX', ARGV[4])
local past = redis.call('HMGET', KEYS[7], 'time:' .. ARGV[1], finish_field(ARGV[1], ARGV[2]))
if past[2] and (tonumber(ARGV[3]) < 0 or not is_alone(KEYS[7], ARGV[1], ARGV[2])) then
  local tag = math.max(tag_of(past[1]), tag_of(past[2]) + ARGV[3] / weight)
  set_finish(KEYS[7], ARGV[1], ARGV[2], tag)
end
note_usage(KEYS[9], kind_of(ARGV[1]), ARGV[2], ARGV[5])
