-- Moves pending completions from the outbox of a replica that has gone to that of another one.
-- KEYS: outbox of the replica that has gone, outbox of the other, owners, registry record of the replica that has gone
-- ARGV: id of the replica that has gone, id of the other, maximum of entries to move, TTL (ms)
-- Returns the number of entries moved; 0 if the replica is in the registry after all.
if redis.call('EXISTS', KEYS[4]) == 1 then
  return 0
end
local names = redis.call('HKEYS', KEYS[1])
local moved = math.min(#names, tonumber(ARGV[3]))
for at = 1, moved do
  redis.call('HSET', KEYS[2], names[at], redis.call('HGET', KEYS[1], names[at]))
  redis.call('HDEL', KEYS[1], names[at])
end
if moved > 0 then
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  redis.call('SADD', KEYS[3], ARGV[2])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
if moved == #names then
  redis.call('SREM', KEYS[3], ARGV[1])
end
return moved
