#!lua flags=allow-oom
-- Corrects what a tenant was charged for a request, once its true cost is known.
-- KEYS: fair_queue
-- ARGV: band, tenant, tokens used beyond the guess (negative where fewer)
local mine = 'finish:' .. ARGV[1] .. ':' .. ARGV[2]
local past = redis.call('HMGET', KEYS[1], 'time:' .. ARGV[1], mine)
if past[2] then
  local tag = math.max(tag_of(past[1]), tag_of(past[2]) + tonumber(ARGV[3]))
  redis.call('HSET', KEYS[1], mine, string.format('%.0f', tag))
end
