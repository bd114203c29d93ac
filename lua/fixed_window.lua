-- Fixed window, aligned to the epoch: "start:count" in one string.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_fixed()
  local function evaluate(s)
    local start, count = unpack_integers(call('GET', s.key), '^(%d+):(%d+)$')
    local at = math.max(s.now, start or 0)
    s.start = at - at % s.window
    s.count = start == s.start and count or 0
    return s.count + s.cost <= s.limit
  end

  local function commit(s, charged)
    if charged then
      s.count = s.count + s.cost
      local value = integer(s.start) .. ':' .. integer(s.count)
      call('SET', s.key, value, 'PX', ttl(s.now, s.start + s.window, s.slack))
    end
    local finish = s.start + s.window - s.now
    local retry = -1
    if s.violated and s.cost <= s.limit then retry = s.count + s.cost <= s.limit and 0 or finish end
    local wait = s.count > 0 and finish or 0
    return math.max(0, s.limit - s.count), retry, wait, wait
  end

  return {evaluate = evaluate, commit = commit}
end
