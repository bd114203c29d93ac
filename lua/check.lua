-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- `lua/FORMAT.md` describes the keys, the arguments and the reply, and has the numbers of algorithms and usages.
--
-- An algorithm is one function of charges with equal policies and costs, and a mode. Mode nil evaluates and commits in
-- one step, each charge as a check of its own. The other modes take one charge of a larger check: 'evaluate' only
-- returns whether the cost fits and writes nothing, true and false commit the verdict on the whole check. So a check of
-- several charges reads its values twice, within one script. Beside holds, the charges of checks are `step` = 2 keys
-- apart, because the key of the holds is between.

local runs, position, charge, errors = ARGV[1], 2, 1, ''
local struct, pcall = struct, pcall

while charge <= #keys do
  -- A run, and the first charge of its checks.
  local checks, size, algorithm, usage, limit, window, parameter, cost = struct.unpack('<HBBBdddd', runs, position)
  -- A byte has no room for the largest number of charges.
  if size == 0 then size = 256 end
  local last = charge + checks * size - 1
  -- Wrong arguments may name more checks than there are keys.
  if last > #keys then last = #keys end
  local COUNT_REJECTED, EVALUATE, REFUND, BY_HAND = 1, 2, 4, 32
  local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
  local mode, extra, width = nil, usage % 2 == COUNT_REJECTED, 34
  local run = algorithm == SLIDING_WINDOW_LOG and sliding_window_log
    or algorithm == SLIDING_WINDOW_COUNTER and sliding_window_counter
    or algorithm == FIXED_WINDOW and fixed_window or token_bucket
  if usage >= EVALUATE then
    mode = false
    if usage == REFUND then
      run, extra, width = refunds[algorithm], struct.unpack('<d', runs, position + 37), 42
    elseif usage >= BY_HAND then
      local HAS_ALTERNATIVE = 64
      if usage < HAS_ALTERNATIVE then
        run, extra, width = changes(usage, algorithm), struct.unpack('<d', runs, position + 37), 42
      end
    end
  end
  -- Checks of one charge beside holds, which neither make nor change a hold. A shadow charge that is alone commits
  -- exactly if it fits, as any other.
  local BESIDE_HOLDS, only_looks = 8, false
  if size == 2 and algorithm >= BESIDE_HOLDS then
    local COMMIT, CHECK, SHADOW, NO_HOLD = 0, 0, 16, '\0\0\0\0\0\0\0\0'
    local change, _, _, id = struct.unpack('<Bddc8', runs, position + 4 + width)
    only_looks = usage % SHADOW == COMMIT and change == CHECK and id == NO_HOLD
    if only_looks then
      local count = algorithm - BESIDE_HOLDS
      run = count == SLIDING_WINDOW_LOG and sliding_window_log
        or count == SLIDING_WINDOW_COUNTER and sliding_window_counter
        or count == FIXED_WINDOW and fixed_window or token_bucket
    end
  end
  -- What handles checks of several charges, once it is needed. The last charge of checks that one EXISTS has looked at,
  -- and of which some have open holds.
  local of_several, mixed = nil, 0

  while charge <= last do
    local succeeded, failure
    -- The next checks, up to this charge, have nothing held beside them.
    local free = charge - 1
    if only_looks then
      -- A key of another type ends the search, and is an error of its own check. A user without the permission for
      -- EXISTS looks at each key by itself.
      local look, to = redis.pcall, math.min(last, charge + 127)
      if mixed > charge then
        to = mixed
      elseif to > charge + 1 then
        local names = {}
        for number = charge + 1, to, 2 do names[#names + 1] = keys[number] end
        if look('EXISTS', unpack(names)) == 0 then free = to else mixed = to end
      end
      while free < to do
        counted, members = free + 1, look('ZCARD', keys[free + 2])
        if members ~= 0 then break end
        free = free + 2
      end
    end
    if size == 1 then
      -- Checks with a single charge evaluate and commit in one pass, the whole run in one call.
      succeeded, failure = pcall(run, now, times, charge, last, cost, mode, limit, window, parameter, extra)
      if succeeded then
        charge = last + 1
      else
        while type(keys[charge]) == 'number' do charge = charge + 1 end
      end
    elseif free > charge then
      -- So do checks that have only looked at holds.
      succeeded, failure = pcall(run, now, times, charge, free - 1, cost, nil, limit, window, parameter, false, 2)
      while charge < free and type(keys[charge]) == 'number' do
        keys[charge + 1], times[charge + 1] = keys[charge] % 2, 0
        charge = charge + 2
      end
    else
      if not of_several then
        of_several = check_together or together()
        if receipts and size == 2 then of_several = receipts.of_one_charge(position + 3, width, of_several) end
      end
      local count = #times
      succeeded, failure = pcall(of_several, charge, size, position + 3, width)
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
        if size > 1 and not check_together then together() end
        -- `runs` has the fields of a charge, `first` and `names` are its number and the keys of its check.
        local first, last_of_check, count, names, HOLDS = charge, charge + size - 1, #times, {}, 8
        for number = first, last_of_check do names[number] = keys[number] end
        local function fields(number)
          return struct.unpack('<BBddd', runs, position + 3 + (number - first) * width)
        end
        local ends, durations, functions = {}, {}, rare()

        -- Units that are settled or refunded are charged to the count beside the ban, which goes on.
        local function change_count()
          local bans, plain_charge_at = functions.bans(), charge_at
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
          -- No denial is counted during a ban.
          if size > 1 then
            charge_at = function(...)
              local run, cost, limit, window, parameter, extra, commit, is_ban, is_shadow, has_alternative =
                plain_charge_at(...)
              return run, is_ban and 0 or cost, limit, window, parameter, extra, commit, is_ban, is_shadow,
                has_alternative
            end
          end
          local changed, why = pcall(function()
            if size > 1 then return check_together(first, size, position + 3, width) end
            return run(now, times, first, first, cost, mode, limit, window, parameter, extra)
          end)
          charge_at = plain_charge_at
          for number, until_then in pairs(ends) do
            local algorithm, _, limit, window, parameter = fields(number)
            algorithm = (algorithm - 1) % HOLDS + 1
            bans.ban(names[number], until_then, durations[number], algorithm, limit, window, parameter)
          end
          if not changed then error(why, 0) end
        end

        -- Judges the check again. A charge whose key is banned does not fit, and no denial is counted for it. Unless it
        -- is under a shadow policy, none is counted for the other charges either.
        local function judge_again()
          functions.met = ends
          if size == 1 then
            return run(now, times, first, first, cost, false, limit, window, parameter, false)
          end
          local plain_charge_at, commits, denies = charge_at, false, false
          charge_at = function(...)
            local run, cost, limit, window, parameter, extra, commit, is_ban, is_shadow, has_alternative =
              plain_charge_at(...)
            local function beside_ban(now, times, number, to, cost, mode, limit, window, parameter, extra)
              -- The count of denials belongs to the charge before, whose holds may be between.
              local own = number
              if is_ban then own = fields(number - 1) == HOLDS and number - 2 or number - 1 end
              commits = commits or mode ~= 'evaluate'
              if denies or ends[names[own]] then extra = false end
              local fits = run(now, times, number, to, cost, mode, limit, window, parameter, extra)
              -- A cost of -0 is denied.
              local is_banned = (ends[names[number]] or ends[names[own]]) and (cost ~= 0 or 1 / cost < 0)
              denies = denies or is_banned and not is_shadow
              -- Once charges are committed, only the count of denials is still evaluated.
              return fits and not is_banned and not (commits and denies)
            end
            return beside_ban, cost, limit, window, parameter, extra, commit, is_ban, is_shadow, has_alternative
          end
          local judged, why = pcall(check_together, first, size, position + 3, width)
          charge_at = plain_charge_at
          if not judged then error(why, 0) end
        end

        -- The holds of a charge come next: they are changed unless their usage is 0.
        local _, change = fields(first + (size > 1 and 1 or 0))
        local is_change = usage == REFUND or size > 1 and algorithm > HOLDS and change > 0
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
if #times == 2 and #keys == 2 then return pack('<ddddd', now, keys[1], keys[2], times[1], times[2]) .. errors end
local rep = string.rep
return pack('<d' .. rep('d', #keys), now, unpack(keys)) .. pack('<' .. rep('d', #times), unpack(times)) .. errors
