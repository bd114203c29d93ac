-- Checks of several charges: commits all charges of a check or, if one of them does not fit, none.

local check_together

if used >= 32 then
  local unpack, runs, keys = struct.unpack, ARGV[1], KEYS
  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}

  -- Returns the function of a charge, its cost, limit, window and parameter, whether rejections count (for a refund:
  -- the time of the commit), whether the policy commits, and whether it counts the denials of the previous charge.
  local function charge_at(position)
    local COUNT_REJECTED, EVALUATE, REFUND, BAN = 1, 2, 4, 8
    local algorithm, usage, limit, window, parameter, cost = unpack('<BBIddI', runs, position)
    if usage == REFUND then
      local committed = unpack('<d', runs, position + 26)
      return refunds[algorithm], cost, limit, window, parameter, committed, false, false
    end
    local counts_rejected, commits, is_ban = usage % 2 == COUNT_REJECTED, usage < EVALUATE, usage == BAN
    return algorithms[algorithm], cost, limit, window, parameter, counts_rejected, commits, is_ban
  end

  -- Handles a check of `size` charges from `first` on. They are packed from `position` on, `width` bytes each.
  check_together = function(first, size, position, width)
    local last = first + size - 1
    -- The charges that do not fit, and those whose count of denials is full.
    local unfit, banned
    for number = first, last do
      local run, cost, limit, window, parameter, extra, _, is_ban = charge_at(position + (number - first) * width)
      if not run(now, times, number, number, cost, 'evaluate', limit, window, parameter, extra) then
        unfit = unfit or {}
        unfit[number] = true
        if is_ban then
          banned = banned or {}
          banned[number - 1] = true
        end
      end
    end
    for number = first, last do
      local run, cost, limit, window, parameter, extra, commits, is_ban =
        charge_at(position + (number - first) * width)
      local key, commit, count = keys[number], commits and not unfit, #times
      if is_ban then
        -- `unfit ~= nil` makes `commit` a boolean, because nil is another mode.
        commit = unfit ~= nil and unfit[number - 1] == true and cost > 0
          and run(now, times, number, number, cost, 'evaluate', limit, window, parameter, false)
      end
      extra = not (banned and banned[number]) and extra
      run(now, times, number, number, cost, commit, limit, window, parameter, extra)
      -- Here a log reports what is available, and its number is below 4 if that is nothing.
      if is_ban and commit and keys[number] < 4 then
        keys[number] = key
        for more = #times, count + 1, -1 do times[more] = nil end
        run(now, times, number, number, limit, true, limit, window, parameter, false)
      end
    end
  end
end
