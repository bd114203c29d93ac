-- Sliding window counter: two buckets aligned to the epoch. The estimate is
-- floor(previous * (window - elapsed) / window) + current. The value is a packed string: start, previous, current, time
-- of the last charge, offset of the key's time. The reply has the current bucket, the time until the window ends and,
-- if it is not empty, the previous bucket.
--
-- Commands: evaluate 1 (GETRANGE); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local sliding_window_counter

if used % 4 >= 2 then
  sliding_window_counter = function(now, times, from, to, cost, mode, limit, window, _, count_rejected, step)
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    for number = from, to, step or 1 do
      local key, allowed = keys[number], mode
      local kept, previous, current, last, offset, time, stepped = 0, 0, 0, 0, 0, now, false
      local value = call('GETRANGE', key, '0', '40')
      if value ~= '' then
        if #value ~= 40 then value = rare().bans().behind(key, 40) end
        kept, previous, current, last, offset = unpack('<ddddd', value)
        -- The rest of NaN, and of an infinite number, is NaN.
        if current % 1 ~= 0 or current < 0 then rare().not_a_count() end
      end
      if offset ~= 0 or not (last <= time) then time, offset, stepped = rare().own_time(now, offset, last, key) end
      local at = time
      if not (kept < time) then
        -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
        if not (kept < 2^53) then rare().not_a_count() end
        at = kept
      end
      local start = at - at % window
      local finish = start + window
      if kept == start - window then
        previous, current = current, 0
      elseif kept ~= start then
        previous, current = 0, 0
      end
      local carried = 0
      if previous ~= 0 then
        if not (previous > 0 and previous < 2^50) or previous % 1 > 0 then rare().not_a_count() end
        carried = muldiv(previous, finish - at, window)
      end
      local fits = carried + current + cost <= limit
      if not fits then
        if current >= 2^50 then rare().not_a_count() end
        fits = cost == 0
      end
      if allowed == 'evaluate' then return fits end
      if allowed == nil then allowed = fits end

      if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
        current = current + cost
        if fits then
          fits = allowed or carried + current + cost <= limit
        elseif current >= 2^50 then
          -- Rejections and settlements have no other bound.
          current = 2^50 - 1
        end
        if value ~= '' and kept == start then
          call('SETRANGE', key, '16', pack('<ddd', current, time, offset))
        else
          call('SETRANGE', key, '0', pack('<ddddd', start, previous, current, time, offset))
          expire(key, value == '', finish + window - time)
        end
      elseif stepped then
        call('SETRANGE', key, '32', pack('<d', offset))
      end
      keys[number], times[number] = current * 4 + (fits and 1 or 0), finish - time
      if previous > 0 then
        keys[number] = keys[number] + 2
        times[#times + 1] = previous
      end
    end
  end
end
