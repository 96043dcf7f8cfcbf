#!lua flags=no-writes
-- Reads how many jobs of a model wait in each priority class, who holds its claimed jobs, and the last moves.
-- KEYS: see the prelude, moves
-- ARGV: maximum number of claimed jobs to read
-- Returns {the numbers of waiting jobs in the priority classes, first to last}, {id, worker, attempt and priority class of each claimed job}
-- and {the moves, newest first}.
local waiting = {}
for class = FIRST_CLASS, BATCH_CLASS do
  local first, last = string.format('%.0f', class * CLASS_WIDTH), string.format('(%.0f', (class + 1) * CLASS_WIDTH)
  waiting[#waiting + 1] = redis.call('ZCOUNT', QUEUE, first, last)
end
local claimed = {}
local jobs = redis.call('ZRANGE', INFLIGHT, 0, ARGV[1] - 1)
for at, claim in ipairs(read_claims(jobs)) do
  local score = tonumber(redis.call('HGET', STATE .. jobs[at], 'score'))
  if claim and score then
    local attempt, worker = parse_claim(claim)
    for _, value in ipairs({jobs[at], worker, tonumber(attempt), math.floor(score / CLASS_WIDTH)}) do
      claimed[#claimed + 1] = value
    end
  end
end
return {waiting, claimed, redis.call('LRANGE', KEYS[9], 0, -1)}
