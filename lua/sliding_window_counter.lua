-- Sliding window counter: two buckets aligned to the epoch, "start:previous:current" in one string. The estimate is
-- floor(previous * (window - elapsed) / window) + current.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_counter()
  local function evaluate(s)
    local start, previous, current = unpack_integers(call('GET', s.key), '^(%d+):(%d+):(%d+)$')
    local at = math.max(s.now, start or 0)
    s.start = at - at % s.window
    if start == s.start then
      s.previous, s.current = previous, current
    elseif start and start == s.start - s.window then
      s.previous, s.current = current, 0
    else
      s.previous, s.current = 0, 0
    end
    s.left = s.start + s.window - at
    s.carried = muldiv(s.previous, s.left, s.window)
    return s.carried + s.current + s.cost <= s.limit
  end

  -- The latest moment, as time left in a window, at which `count` units of the window before weigh at most `room`.
  local function counter_left(count, room, window)
    local quotient, rest = muldiv(room + 1, window, count)
    return math.min(window, rest > 0 and quotient or quotient - 1)
  end

  local function counter_wait(s, cost)
    if s.carried + s.current + cost <= s.limit then return 0 end
    local finish = s.start + s.window
    local room = s.limit - cost - s.current
    if room >= 0 then
      local left = counter_left(s.previous, room, s.window)
      if left > 0 then return finish - left - s.now end
    end
    room = s.limit - cost
    if s.current <= room then return finish - s.now end
    return finish + s.window - counter_left(s.current, room, s.window) - s.now
  end

  local function commit(s, charged)
    if charged then
      s.current = s.current + s.cost
      local value = integer(s.start) .. ':' .. integer(s.previous) .. ':' .. integer(s.current)
      call('SET', s.key, value, 'PX', ttl(s.now, s.start + 2 * s.window, s.slack))
    end
    local available = math.max(0, s.limit - s.carried - s.current)
    local retry = -1
    if s.violated and s.cost <= s.limit then retry = counter_wait(s, s.cost) end
    local next_unit = available < s.limit and counter_wait(s, available + 1) or 0
    return available, retry, next_unit, counter_wait(s, s.limit)
  end

  return {evaluate = evaluate, commit = commit}
end
