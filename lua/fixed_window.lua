-- Fixed window, aligned to the epoch. The value is a packed string: start, count, time of the last charge, offset of
-- the key's time. The reply has the count, and the time until the window ends.
--
-- Commands: evaluate 1 (GETRANGE); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local fixed_window

if used % 8 >= 4 then
  fixed_window = function(now, times, from, to, cost, mode, limit, window, _, count_rejected)
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    for number = from, to do
      local key, allowed = keys[number], mode
      local kept, count, last, offset, time, stepped = 0, 0, 0, 0, now, false
      local value = call('GETRANGE', key, '0', '32')
      if value ~= '' then
        if #value ~= 32 then value = rare().bans().behind(key, 32) end
        kept, count, last, offset = unpack('<dddd', value)
        -- The rest of NaN, and of an infinite number, is NaN.
        if count % 1 ~= 0 or count < 0 then rare().not_a_count() end
      end
      if offset ~= 0 or not (last <= time) then time, offset, stepped = rare().own_time(now, offset, last) end
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
