-- Token bucket as GCRA: one number a key, the theoretical arrival time, at which the bucket is full again. A unit costs
-- window / limit microseconds, which need not be whole, so the time is kept as "whole:fraction" with the fraction in
-- 1/limit microseconds.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_bucket()
  -- How far the arrival time may lie ahead for `cost` more units to fit.
  local function bucket_tolerance(s, cost)
    return muldiv(s.param - cost, s.window, s.limit)
  end

  local function bucket_wait(s, cost)
    local whole, fraction = bucket_tolerance(s, cost)
    local wait = s.arrival - whole
    if s.fraction > fraction then wait = wait + 1 end
    return math.max(0, wait - s.now)
  end

  local function evaluate(s)
    local arrival, fraction = unpack_integers(call('GET', s.key), '^(%d+):(%d+)$')
    if not arrival or arrival < s.now then arrival, fraction = s.now, 0 end
    s.arrival, s.fraction = arrival, math.min(fraction, s.limit - 1)
    return s.cost <= s.param and bucket_wait(s, s.cost) == 0
  end

  local function commit(s, charged)
    if charged then
      local whole, fraction = muldiv(s.cost, s.window, s.limit)
      s.arrival, s.fraction = s.arrival + whole, s.fraction + fraction
      if s.fraction >= s.limit then s.arrival, s.fraction = s.arrival + 1, s.fraction - s.limit end
      -- A counted rejection empties the bucket, and no more than that.
      local depth, rest = bucket_tolerance(s, 0)
      if s.arrival - s.now > depth or (s.arrival - s.now == depth and s.fraction > rest) then
        s.arrival, s.fraction = s.now + depth, rest
      end
      local value = integer(s.arrival) .. ':' .. integer(s.fraction)
      call('SET', s.key, value, 'PX', ttl(s.now, s.arrival + 1, s.slack))
    end
    local whole, rest = muldiv(s.limit, s.arrival - s.now, s.window)
    local taken = whole + math.ceil((rest + s.fraction) / s.window)
    local available = math.max(0, s.param - taken)
    local retry = -1
    if s.violated and s.cost <= s.param then retry = bucket_wait(s, s.cost) end
    local next_unit = available < s.param and bucket_wait(s, available + 1) or 0
    return available, retry, next_unit, bucket_wait(s, s.param)
  end

  return {evaluate = evaluate, commit = commit}
end
