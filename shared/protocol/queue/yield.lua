#!lua flags=allow-oom
-- Returns a running job to the queue for a tenant that waits and has fewer slots than its share, if no worker has a free
-- slot. Tenants that wait or run jobs share the slots by their weights. The job is of the tenant furthest above its share
-- of those that the worker offers, of the same priority class as the waiting one or a later class, and its tenant keeps
-- at least what the other one gets. It continues behind the jobs that tenants below their shares wait for.
-- A tenant gets a slot once a second. Shares are estimated from the first jobs only of long lists.
-- KEYS: see the prelude, moves
-- ARGV: worker, its slots, number of slots that are kept, the tenant of each of these (see claim.lua), (id, attempt)... of at
--       most one job of each tenant
-- Returns the id of a job that the worker does not hold any more, if there is one: the call is repeated because its reply was
-- lost. Otherwise the id of the job, or nil.

local MOVES = KEYS[9]

-- Time (ms) between two slots for one tenant, and between two searches, which all full workers ask for.
local PAUSE, SEARCH = 1000, 200

local MOST_CLAIMED, MOST_WAITING = 999, 99

local OFFERED = 4 + tonumber(ARGV[3])
local kept = read_kept(4, OFFERED - 1)

-- Returns the tenant of each job; false where it is not known. With the `scores` of jobs that wait, also where it could not be
-- claimed.
local function tenants_of(jobs, scores)
  local fields, tenants = {}, {}
  for at, job in ipairs(jobs) do
    fields[at] = 'job:' .. job
  end
  for at, entry in ipairs(#jobs > 0 and redis.call('HMGET', SIZES, unpack(fields)) or {}) do
    local allowed = not scores or not keeps_slot(scores[at]) or select(2, keeper_of(entry, kept, tonumber(ARGV[2])))
    tenants[at] = entry and allowed and parse_account(string.match(entry, '^%l+ %l+ %d+ %d (%S*)')) or false
  end
  return tenants
end

local function class_of(score)
  return math.floor(score / CLASS_WIDTH)
end

-- Returns whether so long (ms) has passed since the time in a field, and notes the time. Also if the clock was set back.
local function is_due(field, pause)
  local now = now_ms()
  if math.abs(now - (tonumber(redis.call('HGET', FAIR_QUEUE, field)) or 0)) < pause then
    return false
  end
  redis.call('HSET', FAIR_QUEUE, field, string.format('%.0f', now))
  return true
end

local offered = {}
for at = OFFERED, #ARGV, 2 do
  local stored, claim = redis.call('HGET', CLAIMS, ARGV[at]), claim_of(ARGV[at + 1], ARGV[1])
  if not is_held(stored, claim) then
    return ARGV[at]
  elseif stored == claim then
    offered[#offered + 1] = ARGV[at]
  end
end

local front = redis.call('ZRANGE', QUEUE, 0, MOST_WAITING - 1, 'WITHSCORES')
if #front == 0 or redis.call('ZCOUNT', LOAD, '-inf', '(1') > 0 or not is_due('searched', SEARCH) then
  return
end

local slots, weights, tenants, claimed = {}, {}, {}, 0
local function note(tenant, taken)
  if not slots[tenant] then
    slots[tenant], tenants[#tenants + 1] = 0, tenant
  end
  slots[tenant] = slots[tenant] + taken
  claimed = claimed + taken
end
for _, tenant in ipairs(tenants_of(redis.call('ZRANGE', INFLIGHT, 0, MOST_CLAIMED - 1))) do
  if tenant then
    note(tenant, 1)
  end
end
local jobs, scores = {}, {}
for at = 1, #front, 2 do
  local score = tonumber(front[at + 1])
  if score < BATCH_CLASS * CLASS_WIDTH then
    jobs[#jobs + 1], scores[#scores + 1] = front[at], score
  end
end
local waiting = tenants_of(jobs, scores)
for _, tenant in ipairs(waiting) do
  if tenant then
    note(tenant, 0)
  end
end

local fields, sum = {}, 0
for at, tenant in ipairs(tenants) do
  fields[at] = 'weight:' .. tenant
end
for at = 1, #fields, MAX_UNPACKED do
  local part = redis.call('HMGET', FAIR_QUEUE, unpack(fields, at, math.min(at + MAX_UNPACKED - 1, #fields)))
  for number, weight in ipairs(part) do
    weights[tenants[at + number - 1]] = tonumber(weight or 1)
    sum = sum + tonumber(weight or 1)
  end
end
local function share(tenant)
  return claimed * weights[tenant] / sum
end

local owners = tenants_of(offered)

-- Returns the number of the job that leaves its slot to the waiting job `at`, and its score.
local function leaving_for(at)
  local other, best, excess, old = waiting[at], nil, 0, nil
  for number, owner in ipairs(owners) do
    local score = owner and owner ~= other and tonumber(redis.call('HGET', STATE .. offered[number], 'score'))
    if score and class_of(score) >= class_of(scores[at]) and slots[owner] - share(owner) > excess
      and (slots[owner] - 1) / weights[owner] >= (slots[other] + 1) / weights[other] then
      best, excess, old = number, slots[owner] - share(owner), score
    end
  end
  return best, old
end

local served = {}
for at, tenant in ipairs(waiting) do
  if tenant and not served[tenant] and slots[tenant] < share(tenant) then
    served[tenant] = true
    local number, score = leaving_for(at)
    if number and is_due('yielded:' .. tenant, PAUSE) then
      local first, last, taken = nil, score, {}
      for place, other in ipairs(waiting) do
        if class_of(scores[place]) == class_of(scores[at]) then
          first = first or place
          local left = other and (taken[other] or slots[other]) < share(other)
          if left and class_of(score) == class_of(scores[at]) then
            taken[other] = (taken[other] or slots[other]) + 1
            last = math.max(last, scores[place] + 1)
          end
        end
      end
      if first < at then
        local front_of_class = math.max(math.floor(scores[first]) - 1, class_of(scores[at]) * CLASS_WIDTH)
        redis.call('ZADD', QUEUE, string.format('%.1f', front_of_class + scores[at] % 1), jobs[at])
      end
      redis.call('HSET', STATE .. offered[number], 'score', string.format('%.0f', last))
      return requeue(offered[number], 'preempted', MOVES) and offered[number] or nil
    end
  end
end
