#!lua flags=no-writes
-- Measures journals of jobs of one model.
-- KEYS: journals
-- ARGV: the number of events to leave out at the beginning of each
-- Returns {number of events, their bytes} of each, flattened.
local found = {}
for at, journal in ipairs(KEYS) do
  local events, bytes = redis.call('LRANGE', journal, ARGV[at], -1), 0
  for _, event in ipairs(events) do
    bytes = bytes + #event
  end
  found[2 * at - 1], found[2 * at] = #events, bytes
end
return found
