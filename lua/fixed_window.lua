-- Fixed window, aligned to the epoch. The value is a packed string: start, count, time of the last charge, offset of
-- the key's time. The reply has the count, and the time until the window ends.
--
-- A calendar window is one whose start and length the client has computed, from the time of an earlier reply. Its value
-- has the end in the place of the start: until then the window goes on, whatever the client sends, so that clients with
-- other rules of a zone share it. If no window goes on, that of the client must contain the time. Otherwise the script
-- refuses the check before it writes anything, and says the time, so that the client computes the window again.
--
-- Commands: evaluate 1 (GETRANGE); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local fixed_window

if used % 8 >= 4 then
  fixed_window = function(now, times, from, to, cost, mode, limit, window, calendar_start, count_rejected, step)
    if calendar_start > 0 then
      -- Few calls have calendar windows, so the first one creates their function.
      local functions = rare()
      functions.calendar_window = functions.calendar_window
        or function(now, times, from, to, cost, mode, limit, window, start, count_rejected, step)
        local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
        for number = from, to, step or 1 do
          local key, allowed = keys[number], mode
          local kept, count, last, offset, time, stepped = 0, 0, 0, 0, now, false
          local value = call('GETRANGE', key, '0', '32')
          if value ~= '' then
            if #value ~= 32 then value = functions.bans().behind(key, 32) end
            kept, count, last, offset = unpack('<dddd', value)
            -- The rest of NaN, and of an infinite number, is NaN.
            if kept % 1 ~= 0 or not (kept < 2^53) or count % 1 ~= 0 or count < 0 then functions.not_a_count() end
          end
          if offset ~= 0 or not (last <= time) then time, offset, stepped = functions.own_time(now, offset, last, key) end
          local finish = kept
          if time >= kept then
            finish, count = start + window, 0
            if time < start or time >= finish then
              -- A hold that has ended before the window: its charge would have been one of an earlier window.
              if allowed == true and time < start then return end
              error('STALEWINDOW' .. pack('<dd', number, time), 0)
            end
          end
          local fits = count + cost <= limit
          if not fits then
            if count >= 2^50 then functions.not_a_count() end
            fits = cost == 0
          end
          if allowed == 'evaluate' then return fits end
          if allowed == nil then allowed = fits end

          if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
            count = count + cost
            if fits then
              fits = allowed or count + cost <= limit
            elseif count >= 2^50 then
              -- Rejections and settlements have no other bound.
              count = 2^50 - 1
            end
            call('SETRANGE', key, '0', pack('<dddd', finish, count, time, offset))
            if kept ~= finish then expire(key, value == '', finish - time) end
          elseif stepped then
            call('SETRANGE', key, '24', pack('<d', offset))
          end
          keys[number], times[number] = count * 4 + (fits and 1 or 0), finish - time
        end
      end
      return functions.calendar_window(now, times, from, to, cost, mode, limit, window, calendar_start, count_rejected,
        step)
    end
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    for number = from, to, step or 1 do
      local key, allowed = keys[number], mode
      local kept, count, last, offset, time, stepped = 0, 0, 0, 0, now, false
      local value = call('GETRANGE', key, '0', '32')
      if value ~= '' then
        if #value ~= 32 then value = rare().bans().behind(key, 32) end
        kept, count, last, offset = unpack('<dddd', value)
        -- The rest of NaN, and of an infinite number, is NaN.
        if count % 1 ~= 0 or count < 0 then rare().not_a_count() end
      end
      if offset ~= 0 or not (last <= time) then time, offset, stepped = rare().own_time(now, offset, last, key) end
      local at = time
      if not (kept < time) then
        -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
        if not (kept < 2^53) then rare().not_a_count() end
        at = kept
      end
      local start = at - at % window
      if kept ~= start then count = 0 end
      local fits = count + cost <= limit
      if not fits then
        if count >= 2^50 then rare().not_a_count() end
        fits = cost == 0
      end
      if allowed == 'evaluate' then return fits end
      if allowed == nil then allowed = fits end

      if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
        count = count + cost
        if fits then
          fits = allowed or count + cost <= limit
        elseif count >= 2^50 then
          -- Rejections and settlements have no other bound.
          count = 2^50 - 1
        end
        call('SETRANGE', key, '0', pack('<dddd', start, count, time, offset))
        if value == '' or kept ~= start then expire(key, value == '', start + window - time) end
      elseif stepped then
        call('SETRANGE', key, '24', pack('<d', offset))
      end
      keys[number], times[number] = count * 4 + (fits and 1 or 0), start + window - time
    end
  end
end
