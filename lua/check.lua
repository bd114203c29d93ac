-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- KEYS: the key of each charge, in order.
-- ARGV: 1. the policies, packed: algorithm (u8), usage (u8), limit (u32), window (microseconds, double), parameter
--          (double: the resolution of a log in microseconds, the burst of a bucket);
--       2. the checks, packed, as runs of equal checks: number of checks (u16), number of their charges (u8), and for
--          each of these charges the index of its policy from 0 (u16) and its cost (u32);
--       3. the client's clock in microseconds; '' or nothing for TIME;
--       4. only if charges are refunded: for each policy the time of the commit (microseconds, double).
-- Reply: one string of doubles: the time used; a number for each charge; a time in microseconds for each charge; more
--        numbers for some charges, in order. Then the texts of errors, in order. The number of a charge whose check has
--        failed is -1, and its time is the length of the error, or 0 for all but the first charge of the check. Any
--        other number is 4 * n, plus 1 if the charge fits, plus 2 in some cases (called "with 2" below):
--          log      n is the available units; the time is that until the next unit.
--                   With 2: two more numbers, the time until the charge fits (-1 if it fits now or never can) and the
--                   time until the newest record leaves.
--                   Without 2, the charge fits: it has become the newest record.
--                   Without 2, the charge does not fit: it fits when the next unit comes. One more number, the time
--                   until the newest record leaves.
--          counter  n is the current bucket; the time is that until its window ends. With 2: one more number, the
--                   previous bucket.
--          window   n is the count; the time is that until its window ends.
--          bucket   n is the fraction of the arrival time; the time is that until the arrival time.
--        A check that has failed has charged nothing, unless a key held another type of value or a command was not
--        permitted. Other checks are not affected. A check is allowed if all of its charges fit.
--
-- An algorithm is one function of charges with equal policies and costs, and a mode. Mode nil evaluates and commits in
-- one step, each charge as a check of its own. The other modes take one charge of a larger check: 'evaluate' only
-- returns whether the cost fits and writes nothing, true and false commit the verdict on the whole check. So a check of
-- several charges reads its values twice, within one script.
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

local errors, more_before = '', 0

-- Returns the function of a policy, its limit, window and parameter, whether rejections count (for a refund: the time
-- of the commit), whether the policy commits, and whether it counts the denials of the previous charge.
local function policy_of(policies, index)
  local COUNT_REJECTED, EVALUATE, REFUND, BAN = 1, 2, 4, 8
  local algorithm, usage, limit, window, parameter = struct.unpack('<BBIdd', policies, 1 + index * 22)
  if usage == REFUND then
    local committed = struct.unpack('<d', ARGV[4], 1 + index * 8)
    return refunds[algorithm], limit, window, parameter, committed, false, false
  end
  return algorithms[algorithm], limit, window, parameter, usage % 2 == COUNT_REJECTED, usage < EVALUATE, usage == BAN
end

-- Handles the checks from `charge` on. `failure` is what the check of `charge` has failed with.
local function handle_all(policies, runs, failure)
  local unpack, keys = struct.unpack, keys
  -- The run that is handled now: its position, its first and its last charge, and the number of charges of a check.
  -- Before the first run it is an empty one.
  local position, first, last, size, checks, index, cost = -2, 1, 0, 0
  while charge <= #keys do
    while charge > last do
      position = position + 3 + size * 6
      checks, size, index, cost = unpack('<HBHI', runs, position)
      first, last = last + 1, last + checks * size
    end
    local check = charge - (charge - first) % size
    if failure then
      -- Redis 7 raises a table, older servers raise a string.
      local message = type(failure) == 'table' and failure.err or tostring(failure)
      local FAILED = -1
      for number = check, check + size - 1 do keys[number], times[number] = FAILED, 0 end
      times[check], errors, failure = #message, errors .. message, nil
      if size > 1 then more_count = more_before end
      charge = check + size
    elseif size == 1 then
      -- Checks with a single charge evaluate and commit in one pass, the whole run in one call.
      local run, limit, window, parameter, extra, commits = policy_of(policies, index)
      local mode
      if not commits then mode = false end
      run(check, last, cost, mode, limit, window, parameter, extra)
      charge = last + 1
    else
      more_before = more_count
      local allowed, unfit, banned = true, nil, nil
      local policy, run, limit, window, parameter, extra, commits, is_ban
      for pass = 1, 2 do
        for number = check, check + size - 1 do
          index, cost = unpack('<HI', runs, position + 3 + (number - check) * 6)
          if index ~= policy then
            run, limit, window, parameter, extra, commits, is_ban = policy_of(policies, index)
            policy = index
          end
          if pass == 1 then
            if not run(number, number, cost, 'evaluate', limit, window, parameter, extra) then
              -- `unfit`: the charges that do not fit. `banned`: the charges whose count of denials is full.
              allowed, unfit = false, unfit or {}
              unfit[number] = true
              if is_ban then
                banned = banned or {}
                banned[number - 1] = true
              end
            end
          else
            local key, commit, before = keys[number], commits and allowed, more_count
            if is_ban then
              -- `unfit ~= nil` makes `commit` a boolean, because nil is another mode.
              commit = unfit ~= nil and unfit[number - 1] == true and cost > 0
                and run(number, number, cost, 'evaluate', limit, window, parameter, false)
            end
            run(number, number, cost, commit, limit, window, parameter, not (banned and banned[number]) and extra)
            -- The number of a log is below 4 if nothing is available.
            if is_ban and commit and keys[number] < 4 then
              keys[number], more_count = key, before
              run(number, number, limit, true, limit, window, parameter, false)
            end
          end
        end
      end
      charge = check + size
    end
  end
end

local succeeded, failure, failed
repeat
  succeeded, failure = pcall(handle_all, ARGV[1], ARGV[2], failure)
  -- Arguments that are not in the format above fail again.
  if not succeeded and failed == charge then error(failure) end
  failed = charge
until succeeded

local pack, rep = struct.pack, string.rep
local reply
if #keys == 1 then
  reply = pack('<ddd', now, keys[1], times[1])
else
  local doubles = rep('d', #keys)
  reply = pack('<d' .. doubles, now, unpack(keys)) .. pack('<' .. doubles, unpack(times))
end
if more_count == 1 then
  reply = reply .. pack('<d', more[1])
elseif more_count > 1 then
  reply = reply .. pack('<' .. rep('d', more_count), unpack(more, 1, more_count))
end
return reply .. errors
