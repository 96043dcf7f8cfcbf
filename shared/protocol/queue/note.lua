#!lua flags=allow-oom
-- Notes the reasoning of a request, which workers cannot tell from other text. A repeated call does nothing.
-- KEYS: see the prelude, mark that it is noted
-- ARGV: priority class, account, TTL (ms) of the mark, usage (a UsageCounts)
if redis.call('SET', KEYS[9], '', 'NX', 'PX', ARGV[3]) then
  note_usage(kind_of(ARGV[1]), ARGV[2], ARGV[4])
end
