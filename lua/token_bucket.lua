-- Token bucket as GCRA: a theoretical arrival time, at which the bucket is full again. A unit costs window / limit
-- microseconds, which need not be whole, so the time is kept as whole microseconds and a fraction in 1/limit
-- microseconds. Kept in a string, packed: both, the end of the TTL, time of the last charge, offset of the key's own
-- time.
--
-- Calls: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) about once a window.

-- Microseconds until `wanted` units fit; 0 if they do.
local function until_filled(wanted, arrival, fraction, now, limit, window, burst)
  -- How far the arrival time may lie ahead for so many more units to fit.
  local ahead, rest = muldiv(burst - wanted, window, limit)
  local wait = arrival + (fraction > rest and 1 or 0) - ahead - now
  return wait > 0 and wait or 0
end

local function token_bucket(key, cost, allowed, now, limit, window, burst, count_rejected)
  local arrival, fraction, expires, last, offset, stepped = 0, 0, 0, 0, 0, nil
  local value = call('GET', key)
  if value then arrival, fraction, expires, last, offset = unpack('<ddddd', value) end
  now, offset, stepped = own_time(now, offset, last)
  if arrival < now then arrival, fraction = now, 0 end
  -- Another limit may have left its fraction.
  if fraction >= limit then fraction = limit - 1 end

  local fits = cost == 0
    or (cost <= burst and until_filled(cost, arrival, fraction, now, limit, window, burst) == 0)
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= burst)) then
    local whole, rest = muldiv(cost, window, limit)
    arrival, fraction = arrival + whole, fraction + rest
    if fraction >= limit then arrival, fraction = arrival + 1, fraction - limit end
    if not fits then
      -- A counted rejection empties the bucket, and no more than that.
      local depth, depth_rest = muldiv(burst, window, limit)
      if arrival - now > depth or (arrival - now == depth and fraction > depth_rest) then
        arrival, fraction = now + depth, depth_rest
      end
    end
    local refresh = expires <= arrival
    if refresh then expires = arrival + 1 + window end
    call('SETRANGE', key, '0', pack('<ddddd', arrival, fraction, expires, now, offset))
    if refresh then call('PEXPIRE', key, ttl(expires - now)) end
    fits = fits and (allowed or until_filled(cost, arrival, fraction, now, limit, window, burst) == 0)
  elseif stepped then
    call('SETRANGE', key, '32', pack('<d', offset))
  end

  local whole, rest = muldiv(limit, arrival - now, window)
  local taken = whole + math.ceil((rest + fraction) / window)
  if taken == 0 then return fits, burst, -1, 0, 0 end
  local available = taken < burst and burst - taken or 0
  local retry = -1
  if not fits and cost <= burst then retry = until_filled(cost, arrival, fraction, now, limit, window, burst) end
  local next_unit = until_filled(available + 1, arrival, fraction, now, limit, window, burst)
  return fits, available, retry, next_unit, arrival - now + (fraction > 0 and 1 or 0)
end
