-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- KEYS: the key of each charge, in order.
-- ARGV: 1. the client's clock in microseconds, or '' for TIME;
--       2. the policies, packed: algorithm (u8), usage (u8), limit (u32), window (microseconds, double), parameter
--          (double: the resolution of a log in microseconds, the burst of a bucket);
--       3. the charges, packed, in the order of KEYS: the number of charges of the check that starts here (u8, 0 inside
--          a check), the index of the policy from 0 (u16), cost (u32);
--       4. only if charges are refunded: for each policy the time of the commit (microseconds, double).
-- Reply: one string: the time used (double); per charge fits (u8, 0 or 1), available (u32), retry_after (-1 = none),
--        next unit and reset (microseconds, doubles). A check that failed has 2 (u8) and its error (length as u32,
--        text) instead, and has charged nothing, unless a key held another type of value or a command was not
--        permitted. Other checks are not affected. A check is allowed if all of its charges fit.
--
-- An algorithm is one function of a key, a cost and a mode. Mode 'evaluate' only returns whether the cost fits and
-- writes nothing. Modes true and false commit the verdict on the whole check. Mode nil evaluates and commits in one
-- step, for a check with a single charge. So a check of several charges reads its values twice, within one script.
--
-- A policy that is used in two ways is sent twice. `src/store/redis/call/protocol.rs` has the same numbers of
-- algorithms and usages:
--   COMMIT          commits the charge if the check fits;
--   COUNT_REJECTED  flag: commits the charge also if the check is denied;
--   EVALUATE        commits nothing, except as COUNT_REJECTED demands: another slot has denied the check;
--   REFUND          refunds an earlier commit;
--   BAN             counts the denials of the previous charge. It takes part in the evaluation, and commits when the
--                   previous charge does not fit. The last denial that fits also commits the whole limit: the ban
--                   lasts until these units have left the window.

local keys, charge = KEYS, 1

-- Handles the checks from `charge` on. The replies replace the keys, in a table that has its size already.
local function handle_all(policies, charges)
  local policy, run, limit, window, parameter, commits, is_ban, extra
  while charge <= #keys do
    local allowed, unfit, banned = nil, nil, nil
    local size = string.byte(charges, charge * 7 - 6)
    -- A check with a single charge evaluates and commits in one pass.
    for pass = size == 1 and 2 or 1, 2 do
      for number = charge, charge + size - 1 do
        local index, cost = unpack('<HI', charges, number * 7 - 5)
        if index ~= policy then
          policy = index
          -- The constants are local to this block, because each further register of the function makes each call
          -- slower.
          local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
          local COUNT_REJECTED, EVALUATE, REFUND, BAN = 1, 2, 4, 8
          local algorithm, usage
          algorithm, usage, limit, window, parameter = unpack('<BBIdd', policies, 1 + index * 22)
          run = algorithm == SLIDING_WINDOW_LOG and sliding_window_log
            or algorithm == SLIDING_WINDOW_COUNTER and sliding_window_counter
            or algorithm == FIXED_WINDOW and fixed_window or token_bucket
          -- `extra` is whether rejections count or, for a refund, the time of the commit.
          commits, is_ban, extra = usage < EVALUATE, usage == BAN, usage % 2 == COUNT_REJECTED
          if usage == REFUND then run, extra = refund[algorithm], unpack('<d', ARGV[4], 1 + index * 8) end
        end
        if pass == 1 then
          local fits = run(keys[number], cost, 'evaluate', now, limit, window, parameter)
          allowed = fits and allowed ~= false
          if not fits then
            -- `unfit`: the charges that do not fit. `banned`: the charges whose count of denials is full.
            unfit = unfit or {}
            unfit[number] = true
            if is_ban then
              banned = banned or {}
              banned[number - 1] = true
            end
          end
        else
          local key, commit = keys[number], commits and allowed
          if is_ban then
            -- `unfit ~= nil` makes `commit` a boolean, because nil is another mode.
            commit = unfit ~= nil and unfit[number - 1] == true and cost > 0
              and run(key, cost, 'evaluate', now, limit, window, parameter)
          end
          local fits, available, retry, next_unit, reset =
            run(key, cost, commit, now, limit, window, parameter, not (banned and banned[number]) and extra)
          if is_ban and commit and available == 0 then
            fits, available, retry, next_unit, reset = run(key, limit, true, now, limit, window, parameter)
          end
          keys[number] = pack('<BIddd', fits and 1 or 0, available, retry, next_unit, reset)
        end
      end
    end
    charge = charge + size
  end
end

while charge <= #keys do
  local ok, failure = pcall(handle_all, ARGV[2], ARGV[3])
  if not ok then
    -- Redis 7 raises a table, older servers raise a string.
    local message = type(failure) == 'table' and failure.err or tostring(failure)
    local size = string.byte(ARGV[3], charge * 7 - 6)
    for number = charge, charge + size - 1 do keys[number] = '' end
    local FAILED = 2
    keys[charge] = pack('<BIc0', FAILED, #message, message)
    charge = charge + size
  end
end
keys[1] = pack('<d', now) .. keys[1]
return table.concat(keys)
