-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- KEYS: the key of each charge, in order. The open holds beside a charge count as one more charge, after it.
-- ARGV: 1. what the call uses (u8, the sum of 1 log, 2 counter, 4 window, 8 bucket, 16 refund, 32 checks of several
--          charges, 128 holds); then the checks, as runs of equal checks: number of checks (u16), number of their
--          charges (u8), and for each of these charges algorithm (u8), usage (u8), limit (u32), window (microseconds,
--          double), parameter (double: the resolution of a log in microseconds, the burst of a bucket), cost (u32), and
--          in a refund the time of the commit (microseconds, double). 8 is added to the algorithm of a charge that is
--          followed by its holds. The fields of holds are 8 instead of an algorithm, usage (u8: 0 check, 1 settle, 2
--          renew), what becomes of an unsettled hold (u32: 0 it is charged, 1 it is released), time-to-live
--          (microseconds, double), id of a hold (8 bytes, zeros for none), units to charge when it settles (u32);
--       2. the client's clock in microseconds; '' or nothing for TIME.
-- Reply: one string of doubles: the time used; a number for each charge; a time in microseconds for each charge; more
--        numbers for some charges, in order. Then the texts of errors, in order. The number of a charge whose check has
--        failed is -1, and its time is the length of the error, or 0 for all but the first charge of the check. Any
--        other number is 4 * n, plus 1 if the charge fits, plus 2 in some cases (called "with 2" below):
--          log      n is the available units; the time is that until the next unit.
--                   With 2: if the charge does not fit, one more number, the time until it fits (-1 if it never can);
--                   in any case one more number, the time until the newest record leaves.
--                   Without 2, the charge fits: it has become the newest record.
--                   Without 2, the charge does not fit: no unit is available, and the charge fits when the next unit
--                   comes. Instead of the available units, n is the time until the newest record leaves.
--          counter  n is the current bucket; the time is that until its window ends. With 2: one more number, the
--                   previous bucket.
--          window   n is the count; the time is that until its window ends.
--          bucket   n is the fraction of the arrival time; the time is that until the arrival time.
--          holds    n is the units that are held. Plus 1 if the charge before fits beside them, or if the hold that was
--                   to be changed was open. The time is that until the last hold ends, or 0 if that is not needed.
--                   The numbers of the charge before are those of its count, as if nothing were held. A check of a log
--                   beside open holds has one more number, after those of the log, if the charge does not fit: the time
--                   until it fits beside them; and one more if the log has less available than is held: the time until
--                   one unit fits beside them. Both are -1 if that can never be.
--        A check that has failed has charged nothing, unless a command was not permitted. Other checks are not
--        affected: a value that no algorithm has written raises the error NOTACOUNT of its own check, and no other
--        value leads to numbers that are out of range. A check is allowed if all of its charges fit, except for those
--        with SHADOW.
--
-- An algorithm is one function of charges with equal policies and costs, and a mode. Mode nil evaluates and commits in
-- one step, each charge as a check of its own. The other modes take one charge of a larger check: 'evaluate' only
-- returns whether the cost fits and writes nothing, true and false commit the verdict on the whole check. So a check of
-- several charges reads its values twice, within one script.
--
-- `src/store/redis/call/protocol.rs` has the same numbers of algorithms and usages:
--   COMMIT          commits the charge if the check fits;
--   COUNT_REJECTED  flag: commits the charge also if the check is denied;
--   EVALUATE        commits nothing, except as COUNT_REJECTED demands: another slot has denied the check;
--   REFUND          refunds an earlier commit;
--   BAN             counts the denials of the previous charge. It takes part in the evaluation, and commits when the
--                   previous charge does not fit. The last denial that fits also commits the whole limit: the ban
--                   lasts until these units have left the window;
--   SHADOW          flag, only in checks of several charges: the charge does not decide the check, and commits if the
--                   check is allowed and the charge fits itself.
-- A check with an id of a hold holds the cost of the charge instead of charging it. A change of a hold is a check of
-- its own, with a cost of 0. `lua/holds.lua` describes holds.

local runs, position, charge, errors = ARGV[1], 2, 1, ''
local struct, pcall = struct, pcall

while charge <= #keys do
  -- A run, and the first charge of its checks.
  local checks, size, algorithm, usage, limit, window, parameter, cost = struct.unpack('<HBBBIddI', runs, position)
  local last = charge + checks * size - 1
  -- Wrong arguments may name more checks than there are keys.
  if last > #keys then last = #keys end
  local COUNT_REJECTED, EVALUATE, REFUND = 1, 2, 4
  local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
  local run, mode, extra, width = nil, nil, usage % 2 == COUNT_REJECTED, 26
  if usage == REFUND then
    run, extra, width = refunds[algorithm], struct.unpack('<d', runs, position + 29), 34
  else
    run = algorithm == SLIDING_WINDOW_LOG and sliding_window_log
      or algorithm == SLIDING_WINDOW_COUNTER and sliding_window_counter
      or algorithm == FIXED_WINDOW and fixed_window or token_bucket
  end
  if usage >= EVALUATE then mode = false end
  local together, BESIDE_HOLDS = check_together, 8
  if size == 2 and algorithm >= BESIDE_HOLDS then together = checks_beside_holds(position + 3, width, together) end

  while charge <= last do
    local succeeded, failure
    if size == 1 then
      -- Checks with a single charge evaluate and commit in one pass, the whole run in one call.
      succeeded, failure = pcall(run, now, times, charge, last, cost, mode, limit, window, parameter, extra)
      if succeeded then
        charge = last + 1
      else
        while type(keys[charge]) == 'number' do charge = charge + 1 end
      end
    else
      local count = #times
      succeeded, failure = pcall(together, charge, size, position + 3, width)
      if succeeded then
        charge = charge + size
      else
        for number = #times, count + 1, -1 do times[number] = nil end
      end
    end
    if not succeeded then
      -- Redis 7 raises a table, older servers raise a string.
      local message = type(failure) == 'table' and failure.err or tostring(failure)
      local FAILED = -1
      for number = charge, charge + size - 1 do keys[number], times[number] = FAILED, 0 end
      times[charge], errors = #message, errors .. message
      charge = charge + size
    end
  end
  position = position + 3 + size * width
end

local pack, rep = struct.pack, string.rep
if #times == 1 then return pack('<ddd', now, keys[1], times[1]) .. errors end
return pack('<d' .. rep('d', #keys), now, unpack(keys)) .. pack('<' .. rep('d', #times), unpack(times)) .. errors
