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
local number_of_fields = redis.call('HLEN', KEYS[1])
local sums, grows = {}, false -- of the fields that change, and whether one is new

-- Returns the numbers of a field, and whether it was there or there is room for it.
local function numbers_of(field, maximum)
  local past = sums[field] or redis.call('HGET', KEYS[1], field)
  if type(past) == 'table' then
    return past
  elseif not past and number_of_fields >= maximum then
    return nil
  end
  sums[field] = {}
  for number in string.gmatch(past or '', '%d+') do
    sums[field][#sums[field] + 1] = tonumber(number)
  end
  if not past then
    number_of_fields, grows = number_of_fields + 1, true
  end
  return sums[field]
end

local newest
for at = 5, #ARGV, 4 do
  if is_newer(ARGV[at], last) then
    newest = ARGV[at]
    local numbers, place = numbers_of(ARGV[at + 1], tonumber(ARGV[3])) or numbers_of(ARGV[at + 2], math.huge), 0
    for number in string.gmatch(ARGV[at + 3], '%d+') do
      place = place + 1
      numbers[place] = (numbers[place] or 0) + number
    end
  end
end
if not newest then
  return
end
for field, numbers in pairs(sums) do
  for place, number in ipairs(numbers) do
    numbers[place] = string.format('%.0f', number)
  end
  redis.call('HSET', KEYS[1], field, table.concat(numbers, ' '))
end
if grows then
  for _, day in ipairs(ARGV[4] ~= '' and redis.call('HKEYS', KEYS[1]) or {}) do
    if (tonumber(day) or 0) < tonumber(ARGV[4]) then
      redis.call('HDEL', KEYS[1], day)
    end
  end
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
redis.call('HSET', KEYS[2], ARGV[1], newest)
redis.call('EXPIRE', KEYS[2], ARGV[2])
