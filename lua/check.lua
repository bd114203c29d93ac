-- The entry: many checks in one call, each paid whole or not at all.
--
-- KEYS: the key of every charge, in order.
-- ARGV: 1. the client's clock in microseconds, or '' for TIME;
--       2. the policies, packed: algorithm (u8), what is done with the charge (u8), limit (u32), window (us, double),
--          parameter (log: resolution in us; bucket: burst; double);
--       3. the charges, packed, in the order of KEYS: how many charges the check has that begins here (u8, 0 = within
--          one), policy (u16, from 0), cost (u32);
--       4. only if charges are given back: when they were made, a time (us, double) for each policy.
-- What is done: bit 0: it counts when the check is refused; bit 1: the check is refused, so that it is judged and not
--        paid; bit 2: it was paid, and is given back; bit 3: it counts the denials of the charge before it (a ban): it
--        takes part in the judgement, and pays when that charge does not fit. The last denial that it has room for pays
--        for all of them once more: the ban lasts until that has left the window. So a policy that is used in two ways is
--        sent twice.
-- Reply: one string: the time used (double); per charge fits (u8, 0 or 1), available (u32), retry_after (-1 = none), next
--        unit and reset (us, doubles); or, for a check that failed, 2 (u8) and the error with its length (u32) before
--        it: it charged nothing (unless a key held what is no count, or a command is not permitted), the others stand.
--        A check is allowed if all of its charges fit.
--
-- An algorithm is one function of a key, a cost, and what is known of the check: EVALUATE only tells whether the cost
-- fits and writes nothing; true and false commit what all charges together came to; nil does both at once, for a check
-- that has no other charge. So a check of several charges reads everything twice, within one script.

local keys, charge = KEYS, 1

-- Judges the checks from `charge` on. The replies take the places of the keys, in a table that has its size already.
local function judge_all(policies, charges)
  local policy, judge, algorithm, use, limit, window, parameter, pays, extra
  while charge <= #keys do
    local allowed, unfit, banned = nil, nil, nil
    local size = string.byte(charges, charge * 7 - 6)
    -- What has one charge needs one pass.
    for pass = size == 1 and 2 or 1, 2 do
      for number = charge, charge + size - 1 do
        local index, cost = unpack('<HI', charges, number * 7 - 5)
        if index ~= policy then
          policy = index
          algorithm, use, limit, window, parameter = unpack('<BBIdd', policies, 1 + index * 22)
          judge = algorithm == 1 and sliding_window_log or algorithm == 2 and sliding_window_counter
            or algorithm == 3 and fixed_window or token_bucket
          pays, extra = use < 2, use % 2 == 1
          if use == 4 then judge, extra = give_back[algorithm], unpack('<d', ARGV[4], 1 + index * 8) end
        end
        if pass == 1 then
          local fits = judge(keys[number], cost, 'evaluate', now, limit, window, parameter)
          allowed = fits and allowed ~= false
          if not fits then
            -- By number: what is denied for itself; and what a full count of denials stands behind.
            unfit = unfit or {}
            unfit[number] = true
            if use == 8 then
              banned = banned or {}
              banned[number - 1] = true
            end
          end
        else
          local key, commit = keys[number], pays and allowed
          if use == 8 then
            -- Not nil, which would be both at once.
            commit = unfit ~= nil and unfit[number - 1] == true and cost > 0
              and judge(key, cost, 'evaluate', now, limit, window, parameter)
          end
          local fits, available, retry, next_unit, reset =
            judge(key, cost, commit, now, limit, window, parameter, not (banned and banned[number]) and extra)
          if use == 8 and commit and available == 0 then
            fits, available, retry, next_unit, reset = judge(key, limit, true, now, limit, window, parameter)
          end
          keys[number] = pack('<BIddd', fits and 1 or 0, available, retry, next_unit, reset)
        end
      end
    end
    charge = charge + size
  end
end

while charge <= #keys do
  local ok, failure = pcall(judge_all, ARGV[2], ARGV[3])
  if not ok then
    -- Redis 7 raises a table, older servers a string.
    local message = type(failure) == 'table' and failure.err or tostring(failure)
    local size = string.byte(ARGV[3], charge * 7 - 6)
    for number = charge, charge + size - 1 do keys[number] = '' end
    keys[charge] = pack('<BIc0', 2, #message, message)
    charge = charge + size
  end
end
keys[1] = pack('<d', now) .. keys[1]
return table.concat(keys)
