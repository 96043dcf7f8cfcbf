-- Accepts jobs all or none, and wakes workers for them.
-- A job's place is its start tag by start-time fair queueing: a tenant's next tag lies behind its last one by what that
-- job costs, but never before the virtual time, which is the tag of the newest claimed job. So tenants that all want
-- more than there is get as many tokens each, and one that wants little is served at once. The newest claim's tag also
-- starts those who were away: nobody saves up a lead.
-- KEYS: queue, load, shares
-- ARGV: payload prefix, worker channel prefix, state prefix, payload TTL (ms), most jobs ahead and new ones together,
--       band, tenant, then (id, payload, cost in tokens)...
-- A job that a worker has, or that was cancelled before it came, is left alone: its command was sent twice, or late.
-- Returns the number of jobs ahead, or -(that) - 1 when the jobs don't fit.
local base = tonumber(ARGV[6]) * BAND_WIDTH
local mine = 'finish:' .. ARGV[6] .. ':' .. ARGV[7]
local past = redis.call('HMGET', KEYS[3], 'time:' .. ARGV[6], mine)
local tag = math.max(1, tonumber(past[1] or 1), tonumber(past[2] or 1))
local ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('(%.0f', base + tag))
local jobs = (#ARGV - 7) / 3
if ahead + jobs > tonumber(ARGV[5]) then
  return -ahead - 1
end
for at = 8, #ARGV, 3 do
  if redis.call('EXISTS', ARGV[3] .. ARGV[at]) == 0 then
    redis.call('SET', ARGV[1] .. ARGV[at], ARGV[at + 1], 'PX', ARGV[4])
    redis.call('ZADD', KEYS[1], string.format('%.0f', base + tag), ARGV[at])
    tag = tag + tonumber(ARGV[at + 2])
  end
end
redis.call('HSET', KEYS[3], mine, string.format('%.0f', tag))
redis.call('PEXPIRE', KEYS[3], ARGV[4])
for _ = 1, jobs do
  wake(KEYS[2], ARGV[2])
end
return ahead
