-- The entry: many checks in one call, each paid whole or not at all.
--
-- KEYS: the key of every charge, in order.
-- ARGV: 1. the client's clock in microseconds, or '' for TIME;
--       2. the policies, packed: algorithm (u8), count_rejected (u8), limit (u32), window (us, double), parameter
--          (log: resolution in us; bucket: burst; double);
--       3. the charges, packed, in the order of KEYS: whether a new check begins (u8), policy (u16, from 0), cost (u32).
-- Reply: the time used; then per check either 1 (allowed) or 0 (denied) followed, per charge, by
--       fits (0/1), available, retry_after (us, -1 = none), next unit (us), reset (us);
--       or an error string alone: this check failed and charged nothing, the others stand.
--
-- An algorithm is one function of a key, a policy, a cost, and what is known of the check: EVALUATE only tells whether
-- the cost fits and writes nothing; true and false commit what all charges together came to; nil does both at once,
-- for a check that has no other charge. So a check of several charges reads everything twice, within one script.

local POLICY = '<BBIdd'
local CHARGE = '<BHI'
local CHARGE_SIZE = 7
-- Made when they are used: closures cost more than what they compute.
local MAKERS = {make_log, make_counter, make_fixed, make_bucket}

local packed_policies, packed_charges = ARGV[2], ARGV[3]
local policies, algorithms, position = {}, {}, 1
while position <= #packed_policies do
  local kind, count_rejected, limit, window, param
  kind, count_rejected, limit, window, param, position = struct.unpack(POLICY, packed_policies, position)
  if not algorithms[kind] then algorithms[kind] = MAKERS[kind]() end
  policies[#policies + 1] = {
    judge = algorithms[kind], limit = limit, window = window, param = param, count_rejected = count_rejected == 1,
  }
end

-- Growing a table costs more than filling it.
local reply, replied = {now, 0, 0, 0, 0, 0, 0}, 1

-- Judges the check of the charges `first` to `last`.
local function check(first, last)
  local allowed = nil
  if first < last then
    allowed = true
    for charge = first, last do
      local _, index, cost = struct.unpack(CHARGE, packed_charges, 1 + (charge - 1) * CHARGE_SIZE)
      local policy = policies[index + 1]
      if not policy.judge(KEYS[charge], policy, cost, EVALUATE) then allowed = false end
    end
  end
  local at = replied + 1
  for charge = first, last do
    local _, index, cost = struct.unpack(CHARGE, packed_charges, 1 + (charge - 1) * CHARGE_SIZE)
    local policy = policies[index + 1]
    local fits, available, retry, next_unit, reset = policy.judge(KEYS[charge], policy, cost, allowed)
    reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4], reply[at + 5] =
      fits and 1 or 0, available, retry, next_unit, reset
    at = at + 5
    if first == last then allowed = fits end
  end
  reply[replied + 1] = allowed and 1 or 0
  replied = at
end

local first, charges = 1, #KEYS
while first <= charges do
  local last = first
  while last < charges and string.byte(packed_charges, 1 + last * CHARGE_SIZE) == 0 do last = last + 1 end
  local ok, failure = pcall(check, first, last)
  if not ok then
    replied = replied + 1
    -- Redis 7 raises a table, older servers a string.
    reply[replied] = type(failure) == 'table' and failure.err or tostring(failure)
  end
  first = last + 1
end
-- What a failed check left behind is no answer.
for index = #reply, replied + 1, -1 do reply[index] = nil end
return reply
