-- Checks of several charges, or beside holds: commits all charges of a check or, if one of them does not fit, none. A
-- shadow charge that does not fit only leaves itself out. Of alternatives, the first that fits is committed, and the
-- others are as if the check did not have them; if none fits, the check is denied.

local check_together, charge_at

-- Creates both functions, and returns the first. Most checks beside holds need neither.
local together

if used >= 32 then together = function()
  local unpack, runs, keys = struct.unpack, ARGV[1], KEYS
  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}

  -- Returns the function of a charge, its cost, limit, window and parameter, whether rejections count (for a refund:
  -- the time of the commit; for a change by hand: the duration of a ban), whether the policy commits, whether it counts
  -- the denials of the previous charge, whether it is a shadow policy, and whether the next charge is an alternative. A
  -- charge takes `width` bytes.
  charge_at = function(position, width)
    local COUNT_REJECTED, EVALUATE, REFUND, BAN, SHADOW, BY_HAND, HOLDS, RECEIPT = 1, 2, 4, 8, 16, 32, 8, 16
    local algorithm, usage, limit, window, parameter, cost = unpack('<BBdddd', runs, position)
    if algorithm >= RECEIPT then
      if algorithm > RECEIPT then return rare().last_ban(usage), 0, limit, window, 0, false, false, false, false end
      local is_refund = usage == REFUND
      return is_refund and receipts.refund or receipts.commit, 0, 0, window, 0, false, not is_refund, false, false
    end
    if algorithm >= HOLDS then
      return charge_with_holds(algorithm, usage, limit, window, parameter, cost, position + width)
    end
    if usage == REFUND then
      local committed = unpack('<d', runs, position + 34)
      return refunds[algorithm], cost, limit, window, parameter, committed, false, false, false
    end
    local is_shadow, has_alternative = usage >= SHADOW, false
    if is_shadow then
      local HAS_ALTERNATIVE, UP_TO = 64, 38
      if usage >= HAS_ALTERNATIVE then
        usage, has_alternative = usage - HAS_ALTERNATIVE, true
        is_shadow = usage >= SHADOW
      elseif usage >= BY_HAND then
        if usage >= UP_TO then
          return changes(usage, algorithm, true), cost, limit, window, parameter, usage % 2 == 1, true, false, false
        end
        local duration = unpack('<d', runs, position + 34)
        return changes(usage, algorithm), cost, limit, window, parameter, duration, false, false, false
      end
      if is_shadow then usage = usage - SHADOW end
    end
    local counts_rejected, commits, is_ban = usage % 2 == COUNT_REJECTED, usage < EVALUATE, usage == BAN
    return algorithms[algorithm], cost, limit, window, parameter, counts_rejected, commits, is_ban, is_shadow,
      has_alternative
  end

  -- Handles a check of `size` charges from `first` on. They are packed from `position` on, `width` bytes each.
  check_together = function(first, size, position, width)
    local last = first + size - 1
    -- Whether a charge denies the check, the charges that do not fit, and those whose count of denials is full.
    local denied, unfit, banned, has_alternatives
    for number = first, last do
      local run, cost, limit, window, parameter, extra, _, is_ban, is_shadow, has_alternative =
        charge_at(position + (number - first) * width, width)
      has_alternatives = has_alternatives or has_alternative
      if not run(now, times, number, number, cost, 'evaluate', limit, window, parameter, extra) then
        denied = denied or not is_shadow
        unfit = unfit or {}
        unfit[number] = true
        if is_ban then
          -- The holds of the charge that is banned may be between.
          local HOLDS, before = 8, position + (number - 1 - first) * width
          banned = banned or {}
          banned[unpack('<B', runs, before) == HOLDS and number - 2 or number - 1] = true
        end
      end
    end
    -- The charges of which an alternative is committed: nothing is committed for them.
    local others
    if has_alternatives then
      local HAS_ALTERNATIVE, SHADOW, BAN, HOLDS, RECEIPT = 64, 16, 8, 8, 16
      -- By the number of the first of alternatives: the number of the one that is committed.
      local chosen, firsts, owners = {}, {}, {}
      local start, owner, goes_on = first, first, false
      denied, others = nil, {}
      for number = first, last do
        local algorithm, usage = unpack('<BB', runs, position + (number - first) * width)
        -- The count of denials and the holds belong to the charge before.
        if algorithm ~= HOLDS and algorithm <= RECEIPT and usage % SHADOW ~= BAN then
          if not goes_on then start = number end
          owner, goes_on = number, usage >= HAS_ALTERNATIVE
          local fits = not (unfit and unfit[number] or banned and banned[number])
          if fits and not chosen[start] then chosen[start] = number end
          if not (goes_on or chosen[start]) and usage % 32 < SHADOW then denied = true end
        end
        firsts[number], owners[number] = start, owner
      end
      for number = first, last do
        local committed = chosen[firsts[number]]
        others[number] = committed ~= nil and committed ~= owners[number]
      end
    end
    if receipts then
      local HOLDS, FIXED_WINDOW, left_out, calendars = 8, 3, '', {}
      for number = first, last do
        local algorithm, _, _, _, calendar_start = unpack('<BBddd', runs, position + (number - first) * width)
        local is_out = unfit and unfit[number] or banned and banned[number] or others and others[number]
        if is_out then
          left_out = left_out .. '\n' .. keys[number] .. '\n'
        elseif algorithm % HOLDS == FIXED_WINDOW and calendar_start > 0 then
          calendars[#calendars + 1] = keys[number]
        end
      end
      receipts.left_out, receipts.calendars = left_out, calendars
    end
    for number = first, last do
      local run, cost, limit, window, parameter, extra, commits, is_ban =
        charge_at(position + (number - first) * width, width)
      local key, commit, count = keys[number], commits and not denied, #times
      -- Only a shadow charge, and an alternative, may be left out of an allowed check.
      if commit and unfit then commit = not unfit[number] and not (banned and banned[number]) end
      local is_other = others and others[number]
      if is_other then commit, extra = false, false end
      if is_ban then
        local HOLDS, before = 8, position + (number - 1 - first) * width
        local denied_charge = unpack('<B', runs, before) == HOLDS and number - 2 or number - 1
        -- `unfit ~= nil` makes `commit` a boolean, because nil is another mode.
        commit = unfit ~= nil and unfit[denied_charge] == true and cost > 0 and not is_other
          and run(now, times, number, number, cost, 'evaluate', limit, window, parameter, false)
      end
      extra = not (banned and banned[number]) and extra
      run(now, times, number, number, cost, commit, limit, window, parameter, extra)
      -- Here a log reports what is available, and its number is below 4 if that is nothing.
      if is_ban and commit and keys[number] < 4 then
        keys[number] = key
        for more = #times, count + 1, -1 do times[more] = nil end
        local LAST_BAN, behind = 32, position + (number + 1 - first) * width
        if number < last and unpack('<B', runs, behind) == LAST_BAN then
          rare().begin_ban(run, keys, times, number, limit, window, unpack('<dd', runs, behind + 2))
        else
          run(now, times, number, number, limit, true, limit, window, parameter, false)
        end
      end
    end
  end
  return check_together
end end
