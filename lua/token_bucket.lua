-- Token bucket as GCRA: the state is the theoretical arrival time, at which the bucket is full again. A unit costs
-- window / limit microseconds. This quotient need not be an integer, so the time is kept as microseconds and a
-- fraction in 1/limit microseconds. The value is a packed string: the microseconds, the fraction, the limit to which
-- the fraction refers, the end of the TTL, the time of the last charge, the offset of the key's time.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) about once a window.

-- Returns the microseconds until `wanted` units fit; 0 if they fit now.
local function until_filled(wanted, arrival, fraction, now, limit, window, burst)
  -- The furthest arrival time ahead of now at which the units fit.
  local ahead, rest = muldiv(burst - wanted, window, limit)
  local wait = arrival + (fraction > rest and 1 or 0) - ahead - now
  return wait > 0 and wait or 0
end

local function token_bucket(key, cost, allowed, now, limit, window, burst, count_rejected)
  local value = call('GET', key)
  local arrival, fraction, parts, expires, last, offset, stepped
  if value then
    arrival, fraction, parts, expires, last, offset = unpack('<dI4I4ddd', value)
  else
    arrival, fraction, parts, expires, last, offset = 0, 0, limit, 0, 0, 0
  end
  now, offset, stepped = own_time(now, offset, last)
  if arrival < now then
    arrival, fraction = now, 0
  elseif parts ~= limit then
    -- The last charge was made under another limit. Rounded up, so that the arrival time never becomes earlier.
    local part, rest = muldiv(fraction, limit, parts)
    fraction = rest > 0 and part + 1 or part
    if fraction == limit then arrival, fraction = arrival + 1, 0 end
  end

  local fits = cost == 0
  if not fits and cost <= burst then
    -- The furthest arrival time ahead of now at which the cost fits.
    local ahead, rest = muldiv(burst - cost, window, limit)
    ahead = now + ahead
    fits = arrival < ahead or (arrival == ahead and fraction <= rest)
  end
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= burst)) then
    if fits then
      local whole, rest = muldiv(cost, window, limit)
      arrival, fraction = arrival + whole, fraction + rest
      if fraction >= limit then arrival, fraction = arrival + 1, fraction - limit end
    else
      -- A counted rejection empties the bucket, and no more. A larger bucket, of another burst or limit, may have gone
      -- further: what it admitted stays charged.
      local whole, rest = muldiv(burst, window, limit)
      whole = now + whole
      if arrival < whole or (arrival == whole and fraction < rest) then arrival, fraction = whole, rest end
    end
    local refresh = expires <= arrival
    if refresh then expires = arrival + 1 + window end
    call('SETRANGE', key, '0', pack('<dI4I4ddd', arrival, fraction, limit, expires, now, offset))
    if refresh then expire(key, not value, ttl(expires - now)) end
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
