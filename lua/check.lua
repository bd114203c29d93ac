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
-- Calls: 1 (TIME), and those of the algorithms. No table is made per check: states are used again.

-- Made when they are used: closures cost more than what they compute.
local MAKERS = {make_log, make_counter, make_fixed, make_bucket}
local BUCKET = 4
local algorithms = {}
local POLICY = '<BBIdd'
local CHARGE = '<BHI'
local CHARGE_SIZE = 7

local client_clock, packed_policies, packed_charges = ARGV[1], ARGV[2], ARGV[3]

-- Covers the rounding of TTLs; with a client's clock, also that it may run slower than the server's.
local slack = client_clock == '' and 1000 or 60000

local now
if client_clock == '' then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(client_clock)
end

-- Tables are made in their final size: growing one costs more than filling it.
local policies, position = {}, 1
while position <= #packed_policies do
  local algorithm, count_rejected, limit, window, param
  algorithm, count_rejected, limit, window, param, position = struct.unpack(POLICY, packed_policies, position)
  if not algorithms[algorithm] then algorithms[algorithm] = MAKERS[algorithm]() end
  policies[#policies + 1] = {
    evaluate = algorithms[algorithm].evaluate,
    commit = algorithms[algorithm].commit,
    limit = limit, window = window, param = param,
    capacity = algorithm == BUCKET and param or limit,
    count_rejected = count_rejected == 1,
  }
end

-- What a charge is judged by. The numbers are the algorithms' own.
local function new_state()
  return {
    now = now, slack = slack, policy = false, key = false, cost = 0, violated = false,
    limit = 0, window = 0, param = 0, capacity = 0, count_rejected = false,
    packed = false, chunk = false, records = false,
    newest = 0, total = 0, settled_at = 0, settled = 0, live_at = 0, live = 0, head = 0, count = 0, oldest_chunk = 0,
    expires = 0, stamp = 0, horizon = 0,
    start = 0, previous = 0, current = 0, left = 0, carried = 0,
    arrival = 0, fraction = 0,
  }
end

local states = {new_state()}
local reply, replied = {now, 0, 0, 0, 0, 0, 0}, 1

local function evaluate(charge, key)
  local s = states[charge]
  if not s then
    s = new_state()
    states[charge] = s
  end
  local _, index, cost = struct.unpack(CHARGE, packed_charges, 1 + (key - 1) * CHARGE_SIZE)
  local policy = policies[index + 1]
  if s.policy ~= policy then
    s.policy, s.capacity, s.count_rejected = policy, policy.capacity, policy.count_rejected
    s.limit, s.window, s.param = policy.limit, policy.window, policy.param
  end
  s.key, s.cost = KEYS[key], cost
  s.violated = not policy.evaluate(s) and cost > 0
  return s.violated
end

-- Judges the check of the charges `first` to `last`.
local function check(first, last)
  local allowed = true
  for key = first, last do
    if evaluate(key - first + 1, key) then allowed = false end
  end
  reply[replied + 1] = allowed and 1 or 0
  local at = replied + 1
  for charge = 1, last - first + 1 do
    local s = states[charge]
    local charged = s.cost > 0 and (allowed or (s.count_rejected and s.cost <= s.capacity))
    reply[at + 1] = s.violated and 0 or 1
    reply[at + 2], reply[at + 3], reply[at + 4], reply[at + 5] = s.policy.commit(s, charged)
    at = at + 5
  end
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
