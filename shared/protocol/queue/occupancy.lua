#!lua flags=no-writes
-- Reads how many jobs of a model wait in each band, and who holds its claimed jobs.
-- KEYS: queue, inflight
-- ARGV: state prefix, maximum number of claimed jobs to read, ids of jobs to look for in the queue...
-- Returns {the numbers of waiting jobs in the bands -3 to 0}, {id, worker, attempt and band of each claimed job}
-- and {the given ids that are in the queue}.
local waiting = {}
for band = -3, 0 do
  local first, last = string.format('%.0f', band * BAND_WIDTH), string.format('(%.0f', (band + 1) * BAND_WIDTH)
  waiting[#waiting + 1] = redis.call('ZCOUNT', KEYS[1], first, last)
end
local claimed = {}
for _, job in ipairs(redis.call('ZRANGE', KEYS[2], 0, ARGV[2] - 1)) do
  local state = redis.pcall('HMGET', ARGV[1] .. job, 'worker', 'attempt', 'score')
  local attempt, score = tonumber(state[2]), tonumber(state[3])
  if state[1] and attempt and score then
    for _, value in ipairs({job, state[1], attempt, math.floor(score / BAND_WIDTH)}) do
      claimed[#claimed + 1] = value
    end
  end
end
local queued = {}
for at = 3, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[at]) then
    queued[#queued + 1] = ARGV[at]
  end
end
return {waiting, claimed, queued}
