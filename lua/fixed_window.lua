-- Fixed window, aligned to the epoch. The value is a packed string: start, count, time of the last charge, offset of
-- the key's time. The reply has the count, and the time until the window ends.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local fixed_window

if used % 8 >= 4 then
  fixed_window = function(now, times, from, to, cost, mode, limit, window, _, count_rejected)
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    for number = from, to do
      local key, allowed = keys[number], mode
      local kept, count, last, offset, time, stepped = 0, 0, 0, 0, now, false
      local value = call('GET', key)
      if value then kept, count, last, offset = unpack('<dddd', value) end
      if offset ~= 0 or time < last then time, offset, stepped = rare().own_time(now, offset, last) end
      -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
      local at = time > kept and time or kept
      local start = at - at % window
      if kept ~= start then count = 0 end
      local fits = cost == 0 or count + cost <= limit
      if allowed == 'evaluate' then return fits end
      if allowed == nil then allowed = fits end

      if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
        count = count + cost
        call('SETRANGE', key, '0', pack('<dddd', start, count, time, offset))
        if not value or kept ~= start then expire(key, not value, start + window - time) end
        fits = fits and (allowed or count + cost <= limit)
      elseif stepped then
        call('SETRANGE', key, '24', pack('<d', offset))
      end
      keys[number], times[number] = count * 4 + (fits and 1 or 0), start + window - time
    end
  end
end
