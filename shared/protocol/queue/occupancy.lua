#!lua flags=no-writes
-- Reads how many jobs of a model wait in each band, and who holds its claimed jobs.
-- KEYS: see the prelude
-- ARGV: maximum number of claimed jobs to read, ids of jobs to look for in the queue...
-- Returns {the numbers of waiting jobs in the bands -3 to 0}, {id, worker, attempt and band of each claimed job}
-- and {the given ids that are in the queue}.
local waiting = {}
for band = -3, 0 do
  local first, last = string.format('%.0f', band * BAND_WIDTH), string.format('(%.0f', (band + 1) * BAND_WIDTH)
  waiting[#waiting + 1] = redis.call('ZCOUNT', QUEUE, first, last)
end
local claimed = {}
local jobs = redis.call('ZRANGE', INFLIGHT, 0, ARGV[1] - 1)
for at, claim in ipairs(read_claims(jobs)) do
  local score = tonumber(redis.pcall('HGET', STATE .. jobs[at], 'score'))
  if claim and score then
    local attempt, worker = parse_claim(claim)
    for _, value in ipairs({jobs[at], worker, tonumber(attempt), math.floor(score / BAND_WIDTH)}) do
      claimed[#claimed + 1] = value
    end
  end
end
local queued = {}
for at = 2, #ARGV do
  if redis.call('ZSCORE', QUEUE, ARGV[at]) then
    queued[#queued + 1] = ARGV[at]
  end
end
return {waiting, claimed, queued}
