#!lua flags=allow-oom
-- Completes the journals of jobs by the logs of steps of the workers that hold them.
-- KEYS: see the prelude
-- ARGV: ids...
local done = {}
for _, claim in ipairs(read_claims(ARGV)) do
  local _, worker = parse_claim(claim or '')
  if worker and not done[worker] then
    done[worker] = true
    journal_steps(worker)
  end
end
