-- Sliding window counter: two buckets aligned to the epoch, "start:previous:current" in one string. The estimate is
-- floor(previous * (window - elapsed) / window) + current.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_counter()
  -- The most time that may be left in a window for `count` units of the one before to weigh at most `room`.
  local function left_for(count, room, window)
    local quotient, rest = muldiv(room + 1, window, count)
    return math.min(window, rest > 0 and quotient or quotient - 1)
  end

  return function(key, policy, cost, allowed)
    local limit, window = policy.limit, policy.window
    local kept, previous, current = unpack_integers(call('GET', key), '^(%d+):(%d+):(%d+)$')
    -- Clock guard: the key's window does not come again.
    local at = math.max(now, kept or 0)
    local start = at - at % window
    if kept == start - window then
      previous, current = current, 0
    elseif kept ~= start then
      previous, current = 0, 0
    end
    local carried = muldiv(previous, start + window - at, window)
    local fits = cost == 0 or carried + current + cost <= limit
    if allowed == EVALUATE then return fits end
    if allowed == nil then allowed = fits end

    if cost > 0 and (allowed or (policy.count_rejected and cost <= limit)) then
      current = current + cost
      local value = integer(start) .. ':' .. integer(previous) .. ':' .. integer(current)
      call('SET', key, value, 'PX', ttl(start + 2 * window))
    end

    local function wait(wanted)
      if carried + current + wanted <= limit then return 0 end
      local finish, room = start + window, limit - wanted
      -- In this window, while the older bucket fades.
      if current <= room then
        local left = left_for(previous, room - current, window)
        if left > 0 then return finish - left - now end
      end
      -- In the next one, where the current bucket is the older one.
      if current <= room then return finish - now end
      return finish + window - left_for(current, room, window) - now
    end

    local available = math.max(0, limit - carried - current)
    if available == limit then return fits, limit, -1, 0, 0 end
    local retry = -1
    if not fits and cost <= limit then retry = wait(cost) end
    return fits, available, retry, wait(available + 1), wait(limit)
  end
end
