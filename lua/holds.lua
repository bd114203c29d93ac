-- Holds: charges whose final cost is known later. The open holds of a count are in a key of their own, with the same
-- hash tag, which only charges under policies with holds read.
--
-- The value is a sorted set. Member 's' has the score -s, for s units in all open holds. Each hold has two members: its
-- id (8 bytes), with the time of its end as the score, and the id followed by 'c', with the score -c for c units. So
-- the ends are the only scores above 0. The last hold that ends removes the key.
--
-- The ends are by the time of the call, and have no offset as the time of a count may have (`own_time` in
-- `lua/rare.lua`). If the server's clock is set back, open holds end later by as much; if it is set forward, they end
-- earlier. Neither admits more than the limit, because a hold counts until it ends and then, unless the policy releases
-- it, as a charge. A hold is charged at its end, but not before the last charge of its count.
--
-- A hold has ended as soon as its time has come. The next charge removes up to 64 such holds before it is evaluated, in
-- the order of their ends, also if the charge is then denied. Further ones count as held until a later charge. A hold
-- leaves the set before its units are charged, so an error between the two never charges twice.
--
-- The TTL covers the last end and the time for which a charge at that end would count, because a hold may be charged
-- long after its end. A settlement may have charged more than a bucket holds; then the arrival time counts as an end.
--
-- Commands, beside those of the count:
--   evaluate         1 (ZSCORE), and 1 (ZRANGE) while holds are open
--   make a hold      3 (ZADD, ZRANGE, PEXPIRE)
--   settle           6 (ZSCORE twice, ZREM, ZADD, ZRANGE, PEXPIRE); the last hold 3 (ZSCORE twice, UNLINK)
--   renew            4 (ZSCORE, ZADD, ZRANGE, PEXPIRE)
--   end expired ones 3 (ZRANGE, ZREM, ZADD), or 2 (ZRANGE, UNLINK) if none is left; 1 (ZSCORE) for each
-- Under a policy that releases unsettled holds: 1 more (ZRANGE) while any are open. Under a policy that charges them: 1
-- more (GETRANGE) when holds have expired, and the commit of a charge for each.

local charge_with_holds, checks_beside_holds

if used >= 128 then
  local spread = unpack
  local call, unpack, runs, keys = redis.call, struct.unpack, ARGV[1], KEYS
  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
  -- By number of a charge: the score of 's', if it has been read already.
  local scores = {}

  -- Returns `charge_with_holds`, for open holds. Few calls need these functions.
  local function with_open_holds()
    local NO_HOLD, MOST_ENDED = string.rep('\0', 8), 64
    -- The usages of a record of holds.
    local CHECK, SETTLE = 0, 1
    local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
    -- By number of a charge: the units that are held, whether the charge fits or the hold is open.
    local states = {}

    local function whole(number) return string.format('%.0f', number) end

    -- Returns the units of a score below 0, out of `held`.
    local function units(key, score, held)
      local part = -(tonumber(score) or 1)
      if not (part >= 0 and part <= held) or part % 1 > 0 then rare().not_a_count(key, true) end
      return part
    end

    -- Returns whether the time of a hold has come.
    local function has_expired(key)
      return call('ZRANGE', key, '(0', whole(now), 'BYSCORE', 'LIMIT', '0', '1')[1] ~= nil
    end

    -- Removes holds, of which `held` units are left.
    local function remove(key, held, members)
      if held <= 0 then
        call('UNLINK', key)
      else
        call('ZREM', key, spread(members))
        call('ZADD', key, whole(-held), 's')
      end
    end

    -- Returns the earliest time of a call at which the count's own time has not run backwards.
    local function reached(key, algorithm, resolution)
      -- With a client's clock a count has no time of its own.
      if tonumber(ARGV[2]) then return 0 end
      if algorithm == SLIDING_WINDOW_LOG then
        local packed = call('GETRANGE', key, '62', '172')
        if packed == '' then return 0 end
        local highest, _, _, newest = unpack('<I4I4dd', packed)
        return newest - resolution + 1 - (highest == 0 and unpack('<d', packed, 104) or 0)
      end
      local from = algorithm == FIXED_WINDOW and 16 or 24
      local packed = call('GETRANGE', key, whole(from), whole(from + 15))
      if packed == '' then return 0 end
      local last, offset = unpack('<dd', packed)
      return last - offset
    end

    -- Ends holds whose time has come. Returns the units that are left.
    local function end_expired(number, algorithm, held, is_released, limit, window, parameter)
      local key, holds, members, left = keys[number], keys[number + 1], {}, held
      local ended = call('ZRANGE', holds, '(0', whole(now), 'BYSCORE', 'LIMIT', '0', tostring(MOST_ENDED), 'WITHSCORES')
      local costs = {}
      for index = 1, #ended, 2 do
        local id = ended[index]
        local cost = units(holds, call('ZSCORE', holds, id .. 'c'), left)
        members[index], members[index + 1], costs[index], left = id, id .. 'c', cost, left - cost
        if tonumber(ended[index + 1]) % 1 > 0 then rare().not_a_count(holds, true) end
      end
      remove(holds, left, members)
      if is_released then return left end
      local earliest = reached(key, algorithm, parameter)
      for index = 1, #ended, 2 do
        local at = math.min(now, math.max(tonumber(ended[index + 1]), earliest))
        algorithms[algorithm](at, {}, number, number, costs[index], true, limit, window, parameter, false)
        keys[number] = key
      end
      return left
    end

    -- Sets the TTL of the holds' key. `last` is when the last hold ends; `ahead` is the time that the count reports.
    local function expire_holds(key, is_new, algorithm, last, ahead, limit, window, parameter)
      local time = last - now
      if algorithm == SLIDING_WINDOW_LOG then
        time = time + window + parameter
      elseif algorithm == SLIDING_WINDOW_COUNTER then
        time = time + 2 * window
      elseif algorithm == FIXED_WINDOW then
        time = time + window
      else
        time = math.max(time, ahead) + 2 * (muldiv(parameter, window, limit) + 1)
      end
      expire(key, is_new, time)
    end

    -- Adds the time to the reply until a log has room for `cost`, which it has not now; -1 if it never has.
    local function wait_beside(times, number, key, cost, limit, window, resolution)
      local count = #times
      keys[number] = key
      sliding_window_log(now, times, number, number, cost, false, limit, window, resolution, false)
      for more = #times, count + 2, -1 do times[more] = nil end
    end

    -- Returns the function of a charge beside holds, whose record is at `position`; that of its holds is at `record`.
    local function beside(algorithm, record)
      local usage, unsettled, ttl, id, actual = unpack('<BIdc8I', runs, record + 1)
      local run, is_released = algorithms[algorithm], unsettled == 1
      return function(now, times, number, _, cost, mode, limit, window, parameter)
        local key, holds = keys[number], keys[number + 1]
        if mode == 'evaluate' then
          -- A hold fits beside the others when it is made, so all of them are less than 2^32.
          local held = units(holds, scores[number] or call('ZSCORE', holds, 's') or 0, 2^32 - 1)
          local expires = held > 0 and has_expired(holds)
          if expires or usage ~= CHECK then
            -- A value that is not a count is an error before anything has changed.
            run(now, times, number, number, 0, 'evaluate', limit, window, parameter, false)
          end
          -- Nothing is charged to a count while a check meets a ban by hand.
          if expires and not rare().met then
            held = end_expired(number, algorithm, held, is_released, limit, window, parameter)
          end
          local fits
          if usage == CHECK then
            -- Also for a cost of 0: a value that is not a count is an error before anything has changed.
            local asked = cost > 0 and cost + held or 0
            fits = run(now, times, number, number, asked, 'evaluate', limit, window, parameter, false)
          else
            local ends = held > 0 and tonumber(call('ZSCORE', holds, id))
            fits = ends and ends > now or false
          end
          states[number] = {held, fits}
          return usage ~= CHECK or fits
        end

        local held, fits = states[number][1], states[number][2]
        local was_empty, changed = held == 0, false
        if usage == CHECK then
          if mode and id == NO_HOLD then
            run(now, times, number, number, cost, true, limit, window, parameter, false)
          elseif mode then
            run(now, times, number, number, 0, false, limit, window, parameter, false)
            held, changed = held + cost, true
            call('ZADD', holds, whole(-held), 's', whole(now + ttl), id, whole(-cost), id .. 'c')
          else
            run(now, times, number, number, cost, false, limit, window, parameter, false)
          end
        elseif fits and usage == SETTLE then
          held = held - units(holds, call('ZSCORE', holds, id .. 'c'), held)
          remove(holds, held, {id, id .. 'c'})
          changed = held > 0
          run(now, times, number, number, actual, true, limit, window, parameter, false)
        else
          run(now, times, number, number, 0, false, limit, window, parameter, false)
          if fits then
            changed = true
            call('ZADD', holds, whole(now + ttl), id)
          end
        end

        local last = now
        if held > 0 and (changed or is_released) then
          last = tonumber(call('ZRANGE', holds, '-1', '-1', 'WITHSCORES')[2]) or now
          -- No hold ends more than a hundred years ahead. A member that is no hold may have any score.
          if last > now + 2^52 then last = now + 2^52 end
        end
        if changed then
          expire_holds(holds, was_empty, algorithm, last, times[number], limit, window, parameter)
        end
        keys[number + 1], times[number + 1] = held * 4 + (fits and 1 or 0), math.max(0, last - now)
        if usage == CHECK and held > 0 and algorithm == SLIDING_WINDOW_LOG then
          local report, next_unit = keys[number], times[number]
          if not fits then wait_beside(times, number, key, cost + held, limit, window, parameter) end
          if (report - report % 4) / 4 < held then
            wait_beside(times, number, key, 1 + held, limit, window, parameter)
          end
          keys[number], times[number] = report, next_unit
        end
      end
    end

    -- The holds of the charge before: its function handles them.
    local function nothing() return true end

    -- The functions of charges beside holds, by the position of the record of their holds. Equal checks share them.
    local made = {}

    -- Does the same as `charge_at` in `lua/check_together.lua`, for charges beside holds and for the holds themselves.
    return function(algorithm, usage, limit, window, parameter, cost, record)
      local HOLDS, EVALUATE, REFUND, SHADOW = 8, 2, 4, 16
      if algorithm == HOLDS then return nothing, 0, 0, 0, 0, false, false, false, false end
      local is_shadow = usage >= SHADOW
      if is_shadow then usage = usage - SHADOW end
      -- A refund of a hold settles it with 0.
      local commits = usage < EVALUATE or usage == REFUND
      local run = made[record] or beside(algorithm - HOLDS, record)
      made[record] = run
      return run, cost, limit, window, parameter, false, commits, false, is_shadow
    end
  end

  charge_with_holds = function(...)
    charge_with_holds = with_open_holds()
    return charge_with_holds(...)
  end

  -- Returns the function that handles checks of one charge beside holds, packed from `position` on: `check_together`,
  -- or a function that does the same for plain charges. While nothing is held, it evaluates and commits in one pass. A
  -- shadow charge that is alone commits exactly if it fits, as any other.
  checks_beside_holds = function(position, width, check_together)
    local HOLDS, COMMIT, CHECK, SHADOW, NO_HOLD = 8, 0, 0, 16, string.rep('\0', 8)
    local algorithm, usage, limit, window, parameter, cost = unpack('<BBIddI', runs, position)
    local change, _, _, id = unpack('<BIdc8', runs, position + width + 1)
    if usage % SHADOW ~= COMMIT or change ~= CHECK or id ~= NO_HOLD then return check_together end
    local run = algorithms[algorithm - HOLDS]
    return function(first, size)
      local score = call('ZSCORE', keys[first + 1], 's')
      if score then
        scores[first] = score
        return check_together(first, size, position, width)
      end
      run(now, times, first, first, cost, nil, limit, window, parameter, false)
      keys[first + 1], times[first + 1] = keys[first] % 2, 0
    end
  end
end
