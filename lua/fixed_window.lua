-- Fixed window, aligned to the epoch. The value is a packed string: start, count, time of the last charge, offset of
-- the key's time.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local function fixed_window(key, cost, allowed, now, limit, window, _, count_rejected)
  local kept, count, last, offset, stepped = 0, 0, 0, 0, nil
  local value = call('GET', key)
  if value then kept, count, last, offset = unpack('<dddd', value) end
  now, offset, stepped = own_time(now, offset, last)
  -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
  local at = now > kept and now or kept
  local start = at - at % window
  if kept ~= start then count = 0 end
  local fits = cost == 0 or count + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    count = count + cost
    call('SETRANGE', key, '0', pack('<dddd', start, count, now, offset))
    if not value or kept ~= start then expire(key, not value, ttl(start + window - now)) end
    fits = fits and (allowed or count + cost <= limit)
  elseif stepped then
    call('SETRANGE', key, '24', pack('<d', offset))
  end

  if count == 0 then return fits, limit, -1, 0, 0 end
  local finish = start + window - now
  return fits, count < limit and limit - count or 0, (fits or cost > limit) and -1 or finish, finish, finish
end
