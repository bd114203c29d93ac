-- Token bucket as GCRA: the state is the theoretical arrival time, at which the bucket is full again. A unit costs
-- window / limit microseconds. This quotient need not be an integer, so the time is kept as microseconds and a
-- fraction in 1/limit microseconds. The value is a packed string: the microseconds, the fraction (u48), the limit to
-- which the fraction refers (u48), the end of the TTL, the time of the last charge, the offset of the key's time. The
-- reply has the fraction, and the time until the arrival time.
--
-- Commands: evaluate 1 (GETRANGE); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) about once a window.

local token_bucket

if used % 16 >= 8 then
  token_bucket = function(now, times, from, to, cost, mode, limit, window, burst, count_rejected, step)
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    -- The time that the cost takes to refill; the furthest arrival time ahead of now at which it fits.
    local whole, part = muldiv(cost, window, limit)
    local ahead, rest = -1, 0
    if cost <= burst then ahead, rest = muldiv(burst - cost, window, limit) end
    for number = from, to, step or 1 do
      local key, allowed = keys[number], mode
      local arrival, fraction, parts, expires, last, offset, time, stepped = 0, 0, limit, 0, 0, 0, now, false
      local value = call('GETRANGE', key, '0', '44')
      if value ~= '' then
        if #value ~= 44 then value = rare().bans().behind(key, 44) end
        arrival, fraction, parts, expires, last, offset = unpack('<dI6I6ddd', value)
        if not (expires < 2^53 and fraction < parts) then rare().not_a_count() end
      end
      if offset ~= 0 or not (last <= time) then time, offset, stepped = rare().own_time(now, offset, last, key) end
      if arrival < time then
        arrival, fraction = time, 0
      elseif not (arrival < 2^53) then
        rare().not_a_count()
      elseif parts ~= limit then
        -- The last charge was made under another limit. Rounded up, so that the arrival time never becomes earlier.
        local converted, remainder = muldiv(fraction, limit, parts)
        fraction = remainder > 0 and converted + 1 or converted
        if fraction == limit then arrival, fraction = arrival + 1, 0 end
      end

      local wait = arrival - time
      local fits = cost == 0 or wait < ahead or (wait == ahead and fraction <= rest)
      if allowed == 'evaluate' then return fits end
      if allowed == nil then allowed = fits end

      if cost > 0 and (allowed or (count_rejected and cost <= burst)) then
        if fits then
          arrival, fraction = arrival + whole, fraction + part
          if fraction >= limit then arrival, fraction = arrival + 1, fraction - limit end
        elseif not count_rejected then
          -- Only a hold that ends charges more than fits. A time further ahead would not be exact.
          local latest = time + 2^52
          if arrival + whole < latest then
            arrival, fraction = arrival + whole, fraction + part
            if fraction >= limit then arrival, fraction = arrival + 1, fraction - limit end
          elseif arrival < latest then
            arrival = latest
          end
          if arrival == latest then fraction = 0 end
        else
          -- A counted rejection empties the bucket, and no more. A larger bucket, of another burst or limit, may have
          -- gone further: what it admitted stays charged.
          local empty, empty_part = muldiv(burst, window, limit)
          empty = time + empty
          if arrival < empty or (arrival == empty and fraction < empty_part) then
            arrival, fraction = empty, empty_part
          end
        end
        local refresh = expires <= arrival
        if refresh then expires = arrival + 1 + window end
        call('SETRANGE', key, '0', pack('<dI6I6ddd', arrival, fraction, limit, expires, time, offset))
        if refresh then expire(key, value == '', expires - time) end
        wait = arrival - time
        fits = fits and (allowed or wait < ahead or (wait == ahead and fraction <= rest))
      elseif stepped then
        call('SETRANGE', key, '36', pack('<d', offset))
      end
      keys[number], times[number] = fraction * 4 + (fits and 1 or 0), wait
    end
  end
end
