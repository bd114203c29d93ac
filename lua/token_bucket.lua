-- Token bucket as GCRA: one number a key, the theoretical arrival time, at which the bucket is full again. A unit costs
-- window / limit microseconds, which need not be whole, so the time is kept as "whole:fraction" with the fraction in
-- 1/limit microseconds.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_bucket()
  return function(key, policy, cost, allowed)
    local limit, window, burst = policy.limit, policy.window, policy.param
    local arrival, fraction = unpack_integers(call('GET', key), '^(%d+):(%d+)$')
    if not arrival or arrival < now then arrival, fraction = now, 0 end
    -- Another limit may have left its fraction.
    fraction = math.min(fraction, limit - 1)

    local function wait(wanted)
      -- How far the arrival time may lie ahead for so many more units to fit.
      local ahead, rest = muldiv(burst - wanted, window, limit)
      return math.max(0, arrival + (fraction > rest and 1 or 0) - ahead - now)
    end

    local fits = cost == 0 or (cost <= burst and wait(cost) == 0)
    if allowed == EVALUATE then return fits end
    if allowed == nil then allowed = fits end

    if cost > 0 and (allowed or (policy.count_rejected and cost <= burst)) then
      local whole, rest = muldiv(cost, window, limit)
      arrival, fraction = arrival + whole, fraction + rest
      if fraction >= limit then arrival, fraction = arrival + 1, fraction - limit end
      -- A counted rejection empties the bucket, and no more than that.
      local depth, depth_rest = muldiv(burst, window, limit)
      if arrival - now > depth or (arrival - now == depth and fraction > depth_rest) then
        arrival, fraction = now + depth, depth_rest
      end
      call('SET', key, integer(arrival) .. ':' .. integer(fraction), 'PX', ttl(arrival + 1))
    end

    local whole, rest = muldiv(limit, arrival - now, window)
    local taken = whole + math.ceil((rest + fraction) / window)
    local available = math.max(0, burst - taken)
    if available == burst then return fits, burst, -1, 0, 0 end
    local retry = -1
    if not fits and cost <= burst then retry = wait(cost) end
    return fits, available, retry, wait(available + 1), wait(burst)
  end
end
