#!lua flags=allow-oom
-- Returns a worker's claimed jobs to their old position in the queue (drain, engine crash).
-- KEYS: see the prelude, moves
-- ARGV: worker, cause, (id, attempt, suspect: 0/1)...
-- Returns the number of requeued jobs.
local back = 0
for at = 3, #ARGV, 3 do
  local job = ARGV[at]
  if is_held(redis.call('HGET', CLAIMS, job), claim_of(ARGV[at + 1], ARGV[1])) then
    if ARGV[at + 2] == '1' then
      redis.call('HINCRBY', STATE .. job, 'crashes', 1)
    end
    if requeue(job, ARGV[2], KEYS[9]) then
      back = back + 1
    end
  end
end
for _ = 1, back do
  wake()
end
return back
