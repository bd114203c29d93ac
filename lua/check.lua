-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- KEYS: the key of each charge, in order. The open holds beside a charge count as one more charge, after it.
-- ARGV: 1. what the call uses (u8, the sum of 1 log, 2 counter, 4 window, 8 bucket, 16 receipts and refunds, 32 checks
--          of several charges, 64 changes by hand, 128 holds); then the checks, as runs of equal checks: number of
--          checks (u16), number of their charges (u8), and for each of these charges algorithm (u8), usage (u8), limit
--          (u32), window (microseconds, double), parameter (double: the resolution of a log in microseconds, the burst
--          of a bucket), cost (u32), and in a refund the time of the commit, in a change by hand the duration of a ban
--          (microseconds, double). 8 is added to the algorithm of a charge that is followed by its holds. The fields of
--          holds are 8 instead of an algorithm, usage (u8: 0 check, 1 settle, 2 renew; plus 4 to ask the holds without
--          their count, then both keys are that of the holds), what becomes of an unsettled hold (u32: 0 it is charged,
--          1 it is released), time-to-live (microseconds, double), id of a hold (8 bytes, zeros for none), units to
--          charge when it settles (u32). A receipt is the last charge of its check. Its fields are those of a charge:
--          16 instead of an algorithm, usage, the time-to-live instead of the window, and zeros;
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
--          receipt  1 if the check was committed. The time is 0.
--        The text of a check with a key that is banned by hand is not an error. It is BANNED, then the end of the ban
--        of each charge (double, 0 without one), then the reply to a call with this check alone. A charge whose key is
--        banned fits only if its cost is 0, whatever its number says.
--        A check that has failed has charged nothing, unless a command was not permitted: its values are checked when
--        it is evaluated, before any of its charges is committed. Only holds whose time has come may have ended. Other
--        checks are not affected: a value that no algorithm has written raises the error NOTACOUNT of its own check,
--        and no other value leads to numbers that are out of range. A check is allowed if all of its charges fit,
--        except for those with SHADOW.
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
--   RECORD, CREDIT, BAN_BY_HAND, UNBAN, FORGET_DENIALS
--                   change the count by hand, each as a check of its own, see `lua/by_hand.lua`. FORGET_DENIALS is for
--                   the count of denials, and follows UNBAN.
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
  local COUNT_REJECTED, EVALUATE, REFUND, BY_HAND = 1, 2, 4, 32
  local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
  local mode, extra, width = nil, usage % 2 == COUNT_REJECTED, 26
  local run = algorithm == SLIDING_WINDOW_LOG and sliding_window_log
    or algorithm == SLIDING_WINDOW_COUNTER and sliding_window_counter
    or algorithm == FIXED_WINDOW and fixed_window or token_bucket
  if usage >= EVALUATE then
    mode = false
    if usage == REFUND then
      run, extra, width = refunds[algorithm], struct.unpack('<d', runs, position + 29), 34
    elseif usage >= BY_HAND then
      run, extra, width = changes(usage, algorithm), struct.unpack('<d', runs, position + 29), 34
    end
  end
  local together, BESIDE_HOLDS = check_together, 8
  if size == 2 then
    if algorithm >= BESIDE_HOLDS then together = checks_beside_holds(position + 3, width, together) end
    if receipts then together = receipts.of_one_charge(position + 3, width, together) end
  end

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
      local BANNED, AGAIN, FAILED = 'BANNED', 'AGAIN', -1
      if message == BANNED then
        -- `runs` has the fields of a charge, `first` and `names` are its number and the keys of its check.
        local first, last_of_check, count, names, HOLDS = charge, charge + size - 1, #times, {}, 8
        for number = first, last_of_check do names[number] = keys[number] end
        local function fields(number)
          return struct.unpack('<BBIdd', runs, position + 3 + (number - first) * width)
        end
        local _, second = fields(last_of_check)
        local ends, durations, functions = {}, {}, rare()

        -- Units that are settled or refunded are charged to the count beside the ban, which goes on.
        local function change_count()
          local bans = functions.bans()
          local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
          for number = first, last_of_check do
            local algorithm, _, limit, window, parameter = fields(number)
            local evaluated = algorithms[(algorithm - 1) % HOLDS + 1]
            if evaluated then bans.evaluate(evaluated, number, 0, limit, window, parameter) end
          end
          for number = first, last_of_check do
            local length = bans.lengths[(fields(number) - 1) % HOLDS + 1]
            if length ~= nil then ends[number], durations[number] = bans.lift(names[number], length) end
          end
          local changed, why = pcall(function()
            if size > 1 then return check_together(first, size, position + 3, width) end
            return run(now, times, first, first, cost, mode, limit, window, parameter, extra)
          end)
          for number, until_then in pairs(ends) do
            local algorithm, _, limit, window, parameter = fields(number)
            algorithm = (algorithm - 1) % HOLDS + 1
            bans.ban(names[number], until_then, durations[number], algorithm, limit, window, parameter)
          end
          if not changed then error(why, 0) end
        end

        -- Judges the check again. A charge whose key is banned does not fit, and no rejection is counted.
        local function judge_again()
          functions.met = ends
          if size == 1 then
            return run(now, times, first, first, cost, false, limit, window, parameter, false)
          end
          local plain_charge_at, commits = charge_at, false
          charge_at = function(...)
            local run, cost, limit, window, parameter, _, commit, is_ban, is_shadow = plain_charge_at(...)
            local function beside_ban(now, times, number, to, cost, mode, limit, window, parameter, extra)
              local key = keys[number]
              local fits = run(now, times, number, to, cost, mode, limit, window, parameter, extra)
              commits = commits or mode ~= 'evaluate'
              -- Once charges are committed, only the count of denials is still evaluated.
              return fits and not commits and (cost == 0 or not ends[key])
            end
            return beside_ban, cost, limit, window, parameter, false, commit, is_ban, is_shadow
          end
          local judged, why = pcall(check_together, first, size, position + 3, width)
          charge_at = plain_charge_at
          if not judged then error(why, 0) end
        end

        local is_change = usage == REFUND or size == 2 and algorithm > HOLDS and second > 0
        succeeded, failure = pcall(is_change and change_count or judge_again)
        functions.met = nil
        if succeeded and is_change then
          charge = last_of_check + 1
        elseif succeeded then
          local reply = {}
          for number = first, last_of_check do reply[#reply + 1] = ends[names[number]] or 0 end
          reply[#reply + 1] = now
          for number = first, last_of_check do reply[#reply + 1] = keys[number] end
          for number = first, last_of_check do reply[#reply + 1] = times[number] end
          for number = count + 1, #times do reply[#reply + 1] = times[number] end
          message = BANNED .. struct.pack('<' .. string.rep('d', #reply), unpack(reply))
          succeeded = false
        else
          message = type(failure) == 'table' and failure.err or tostring(failure)
        end
        if not succeeded then
          for number = #times, count + 1, -1 do times[number] = nil end
        end
      end
      -- A ban that has ended was lifted, so the check is judged again.
      if not succeeded and message ~= AGAIN then
        for number = charge, charge + size - 1 do keys[number], times[number] = FAILED, 0 end
        times[charge], errors = #message, errors .. message
        charge = charge + size
      end
    end
  end
  position = position + 3 + size * width
end

local pack = struct.pack
if #times == 1 then return pack('<ddd', now, keys[1], times[1]) .. errors end
local rep = string.rep
return pack('<d' .. rep('d', #keys), now, unpack(keys)) .. pack('<' .. rep('d', #times), unpack(times)) .. errors
