-- The entry: many checks in one call, each paid whole or not at all.
--
-- KEYS: the key of every charge, in order.
-- ARGV: the client's clock in microseconds, or '' for TIME; then per check the number of its charges, and per charge
--       algorithm, limit, window (us), parameter (log: resolution in us; bucket: burst), count_rejected (0/1), cost.
-- Reply: the time used; then per check either 1 (allowed) or 0 (denied) followed, per charge, by
--       fits (0/1), available, retry_after (us, -1 = none), next unit (us), reset (us);
--       or an error string alone: this check failed and charged nothing, the others stand.

local ALGORITHMS = {['1'] = log, ['2'] = counter, ['3'] = fixed, ['4'] = bucket}

-- Covers the rounding of TTLs; with a client's clock, also that it may run slower than the server's.
local slack = ARGV[1] == '' and 1000 or 60000

local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end

local function evaluate(key, argument)
  local s = {
    key = key, now = now, slack = slack,
    algorithm = ALGORITHMS[ARGV[argument]],
    limit = tonumber(ARGV[argument + 1]),
    window = tonumber(ARGV[argument + 2]),
    param = tonumber(ARGV[argument + 3]),
    count_rejected = ARGV[argument + 4] == '1',
    cost = tonumber(ARGV[argument + 5]),
  }
  s.violated = not s.algorithm.evaluate(s) and s.cost > 0
  return s
end

local function check(key, argument, charges)
  local states, allowed = {}, true
  for i = 1, charges do
    states[i] = evaluate(KEYS[key + i - 1], argument + (i - 1) * 6)
    if states[i].violated then allowed = false end
  end
  local answer = {allowed and 1 or 0}
  for _, s in ipairs(states) do
    local capacity = s.algorithm == bucket and s.param or s.limit
    local charged = s.cost > 0 and (allowed or (s.count_rejected and s.cost <= capacity))
    local available, retry, next_unit, reset = s.algorithm.commit(s, charged)
    local n = #answer
    answer[n + 1] = s.violated and 0 or 1
    answer[n + 2] = available
    answer[n + 3] = retry
    answer[n + 4] = next_unit
    answer[n + 5] = reset
  end
  return answer
end

local reply = {now}
local key, argument = 1, 2
while ARGV[argument] do
  local charges = tonumber(ARGV[argument])
  local ok, answer = pcall(check, key, argument + 1, charges)
  if ok then
    for _, number in ipairs(answer) do reply[#reply + 1] = number end
  else
    -- Redis 7 raises a table, older servers a string.
    reply[#reply + 1] = type(answer) == 'table' and answer.err or tostring(answer)
  end
  key, argument = key + charges, argument + 1 + charges * 6
end
return reply
