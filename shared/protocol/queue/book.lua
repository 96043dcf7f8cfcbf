#!lua flags=allow-oom
-- Adds what jobs have used to counters: each entry once, because they are read and added in the order of their ids.
-- KEYS: counters (hash: field -> numbers), booked (hash: model -> id of the newest entry that was added)
-- ARGV: model, TTL (s), maximum of fields, first field that is kept of those that are days, then for each entry: id,
--       field, field beyond the maximum, numbers

-- Returns whether one id of a stream, "TIME-NUMBER", is greater than another.
local function is_newer(id, other)
  local time, number = string.match(id, '^(%d+)%-(%d+)$')
  local other_time, other_number = string.match(other, '^(%d+)%-(%d+)$')
  return not other_time or tonumber(time) > tonumber(other_time)
    or (time == other_time and tonumber(number) > tonumber(other_number))
end

local last = redis.call('HGET', KEYS[2], ARGV[1]) or '0-0'
for at = 5, #ARGV, 4 do
  if is_newer(ARGV[at], last) then
    local field = ARGV[at + 1]
    local past = redis.call('HGET', KEYS[1], field)
    if not past and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
      field = ARGV[at + 2]
      past = redis.call('HGET', KEYS[1], field)
    end
    local sums, known = {}, string.gmatch(past or '', '%d+')
    for number in string.gmatch(ARGV[at + 3], '%d+') do
      sums[#sums + 1] = string.format('%.0f', number + (known() or 0))
    end
    redis.call('HSET', KEYS[1], field, table.concat(sums, ' '))
    if not past then
      for _, day in ipairs(ARGV[4] ~= '' and redis.call('HKEYS', KEYS[1]) or {}) do
        if (tonumber(day) or 0) < tonumber(ARGV[4]) then
          redis.call('HDEL', KEYS[1], day)
        end
      end
      redis.call('EXPIRE', KEYS[1], ARGV[2])
    end
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[at])
    redis.call('EXPIRE', KEYS[2], ARGV[2])
  end
end
