-- Sliding window counter: two buckets aligned to the epoch. The estimate is
-- floor(previous * (window - elapsed) / window) + current. The value is a packed string: start, previous, current, time
-- of the last charge, offset of the key's time.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

-- Returns the longest time left in a window at which `count` units of the previous window weigh at most `room` units.
local function left_for(count, room, window)
  local quotient, rest = muldiv(room + 1, window, count)
  return math.min(window, rest > 0 and quotient or quotient - 1)
end

-- Returns the microseconds until `wanted` units fit. The units must not fit now.
local function until_room(wanted, previous, current, finish, now, limit, window)
  local room = limit - wanted
  -- In this window, while the older bucket loses weight.
  if current <= room then
    local left = left_for(previous, room - current, window)
    if left > 0 then return finish - left - now end
    -- At the start of the next window, when the older bucket is gone.
    return finish - now
  end
  -- In the next window, in which the current bucket is the older one.
  return finish + window - left_for(current, room, window) - now
end

local function sliding_window_counter(key, cost, allowed, now, limit, window, _, count_rejected)
  local kept, previous, current, last, offset, stepped = 0, 0, 0, 0, 0, nil
  local value = call('GET', key)
  if value then kept, previous, current, last, offset = unpack('<ddddd', value) end
  now, offset, stepped = own_time(now, offset, last)
  -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
  local at = now > kept and now or kept
  local start = at - at % window
  local finish = start + window
  if kept == start - window then
    previous, current = current, 0
  elseif kept ~= start then
    previous, current = 0, 0
  end
  local carried = previous > 0 and muldiv(previous, finish - at, window) or 0
  local fits = cost == 0 or carried + current + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    current = current + cost
    call('SETRANGE', key, '0', pack('<ddddd', start, previous, current, now, offset))
    if not value or kept ~= start then expire(key, not value, ttl(finish + window - now)) end
    fits = fits and (allowed or carried + current + cost <= limit)
  elseif stepped then
    call('SETRANGE', key, '32', pack('<d', offset))
  end

  local spent = carried + current
  if spent == 0 then return fits, limit, -1, 0, 0 end
  local available = spent < limit and limit - spent or 0
  local retry = -1
  if not fits and cost <= limit then retry = until_room(cost, previous, current, finish, now, limit, window) end
  local next_unit = until_room(available + 1, previous, current, finish, now, limit, window)
  local reset = until_room(limit, previous, current, finish, now, limit, window)
  return fits, available, retry, next_unit, reset
end
