-- Holds: charges whose final cost is known later. The open holds of a count are in a key of their own, with the same
-- hash tag, which only charges under policies with holds read.
--
-- The value is a sorted set. Its first member is the head, with the score -s, for s units in all open holds. The name
-- of the head has 25 bytes: 't', a time that the holds have reached, their offset from the server's time, and a time
-- that is not before the last end (doubles). Each hold has two members: its id (8 bytes), with the time of its end as
-- the score, and the id followed by 'c', with the score (c + 1) * 10^20 for c units. So the ends come first after the
-- head, the earliest one first, and the last end is in the middle of the set. The last hold that ends removes the key.
--
-- The ends are by the holds' own time, which does not run backwards (`own_time` in `lua/rare.lua`). If the server's
-- clock is set back, the holds of a process that has died end all the same. The time that they have reached is written
-- with a new or renewed hold, if it is later by a 64th of the time-to-live. So a clock that is set back prolongs a hold
-- by that part, and by the time since the last hold was made or renewed. If the clock is set forward, holds end
-- earlier. Neither admits more than the limit, because a hold counts until it ends and then, unless the policy releases
-- it, as a charge. A hold is charged at its end, but not before the last charge of its count.
--
-- A hold has ended as soon as its time has come. The next charge removes such holds before it is evaluated, in the
-- order of their ends, also if the charge is then denied. If all of them have ended and are released, it removes the
-- key. Otherwise it removes up to 4 096 that are released, or 1 024 that are charged. All charges of a call share this
-- number; then each may remove 64 more. Further ones count as held until a later charge, which affects no check that
-- costs fewer units than holds are removed. A hold leaves the set before its units are charged, so an error between the
-- two never charges twice. Holds that end at the same time are one charge.
--
-- The TTL covers the last end and the time for which a charge at that end would count, because a hold may be charged
-- long after its end. A settlement may have charged more than a bucket holds; then the arrival time counts as an end. A
-- charge by hand does not name this key, so it does not prolong the TTL: `docs/holds.md` says what follows. The TTL is
-- set for a 64th of the time-to-live more, so that few holds set it.
--
-- Commands, beside those of the count:
--   evaluate         1 (ZCARD), and 1 (ZRANGE) while holds are open; 1 (EXISTS) for up to 64 checks beside which
--                    nothing is held, and 1 more otherwise
--   make a hold      1 (ZADD)
--   settle           4 (ZSCORE twice, ZREM, ZADD); the last hold 3 (ZSCORE twice, UNLINK)
--   renew            2 (ZSCORE, ZADD)
--   end expired ones 3 (ZRANGE, ZMSCORE, ZREM) for 512 of them, and 1 (ZADD, or UNLINK if none is left); released ones
--                    2 (ZRANGE, UNLINK) if none is left
-- A hold that is made or renewed replaces the head and sets the TTL up to 64 times in a time-to-live: 2 more (ZREM,
-- PEXPIRE). Beside a token bucket, every hold and settlement sets the TTL. Under a policy that releases unsettled
-- holds: 1 more (ZRANGE) for a check, while any are open. Under a policy that charges them: 1 more (GETRANGE) when
-- holds have expired, and the commit of a charge for each time at which some end. After the server's clock was set
-- back: once 2 more (ZREM, ZADD). A settlement that may be a denial: 1 more (GETRANGE) if it charges more than was
-- held, and those of the count of denials. Holds that are asked alone: the same, without the commands of the count.

local charge_with_holds
-- The charge whose holds were counted last, by its number, and how many members they have, or an error.
local counted, members

if used >= 128 then
  -- Replaces itself at the first call. Few calls need these functions.
  charge_with_holds = function(...)
    local spread = unpack
    local call, pack, unpack, runs, keys = redis.call, struct.pack, struct.unpack, ARGV[1], KEYS
    local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
    local NO_HOLD = string.rep('\0', 8)
    -- The usages of a record of holds.
    local CHECK, SETTLE, ALONE, COUNT_DENIAL = 0, 1, 4, 8
    local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET = 1, 2, 3, 4
    -- Expired holds that this call may still end, if they are released, beside those that every charge may end; as how
    -- many one counts that is charged; the most of one ZRANGE.
    local may_end, LEAST_ENDED, WEIGHT_OF_CHARGE, BATCH = 4096, 64, 4, 512
    local function whole(number) return string.format('%.0f', number) end

    -- Open holds that are not, of this call. Redis returns the names of members whole, whatever their length, so no
    -- further check of the call reads them.
    local refused = {}

    local function not_holds(key)
      refused[key] = true
      rare().not_a_count()
    end

    -- Returns the units of a score, of which there are no more than `held`.
    local function units(key, score, held)
      score = tonumber(score) or 0
      local part = math.floor(score / 1e20 + 0.5) - 1
      if not (part >= 0 and part <= held and (part + 1) * 1e20 == score) then not_holds(key) end
      return part
    end

    -- Returns the units that are held, whether the time of a hold has come, the time of the holds and its offset, and
    -- what the head says: its name, a time that the holds have reached, and one that is not before the last end.
    local function look_at(key)
      if refused[key] then not_holds(key) end
      local found = call('ZRANGE', key, '0', '1', 'WITHSCORES')
      local head, held, last, offset, covered = found[1], -tonumber(found[2])
      if #head == 25 then last, offset, covered = unpack('<ddd', head, 2) end
      -- A hold fits beside the others when it is made, so all of them are no more than the largest limit.
      if not (covered and covered >= 0 and covered < 2^54 and held >= 0 and held <= 2^40) or held % 1 > 0 then
        not_holds(key)
      end
      if found[3] and #found[3] > 9 then not_holds(key) end
      local time, stepped = now, false
      if offset ~= 0 or not (last <= now) then
        time, offset, stepped = rare().own_time(now, offset, last, key)
      end
      if stepped then
        local replaced = head
        head, last = 't' .. pack('<ddd', time, offset, covered), time
        call('ZADD', key, whole(-held), head)
        if replaced ~= head then call('ZREM', key, replaced) end
      end
      return held, found[3] and tonumber(found[4]) <= time, time, offset, head, last, covered
    end

    -- Returns when the last of the holds with `card` members ends, or the time if there is none.
    local function last_end(key, card, time)
      local middle = (card - card % 2) / 2
      local found = call('ZRANGE', key, middle, middle, 'WITHSCORES')
      if found[1] and #found[1] > 25 then not_holds(key) end
      local last = tonumber(found[2]) or time
      -- No hold ends more than a hundred years ahead. A member that is no hold may have any score.
      return last < time + 2^52 and last or time + 2^52
    end

    -- Sets the units that are left.
    local function keep(key, held, head)
      if held <= 0 then
        call('UNLINK', key)
      else
        call('ZADD', key, whole(-held), head)
      end
    end

    -- Ends holds whose time has come. Returns the units that are left, how many holds have ended, and whether the key
    -- is gone. If the call may make a hold (`makes`), the head stays after the last one has ended: a node that gives a
    -- slot away creates no key. Of more than 64 holds that are released together, the key is removed all the same.
    local function end_expired(number, algorithm, card, held, time, offset, head, makes, is_released, limit, window,
      parameter)
      -- Returns the earliest time of a call at which the count's own time has not run backwards.
      local function reached(key, algorithm, resolution)
        -- With a client's clock a count has no time of its own.
        if tonumber(ARGV[2]) then return 0 end
        if algorithm == SLIDING_WINDOW_LOG then
          local packed = call('GETRANGE', key, '68', '191')
          if packed == '' then return 0 end
          local highest, _, _, newest = unpack('<I6I6dd', packed)
          return newest - resolution + 1 - (highest == 0 and unpack('<d', packed, 117) or 0)
        end
        local from = algorithm == FIXED_WINDOW and 16 or algorithm == TOKEN_BUCKET and 28 or 24
        local packed = call('GETRANGE', key, whole(from), whole(from + 15))
        if packed == '' then return 0 end
        local last, offset = unpack('<dd', packed)
        return last - offset
      end

      local key, holds, left, ended = keys[number], keys[number + 1], held, 0
      local is_small = makes and card <= 2 * LEAST_ENDED + 1
      if is_released and not is_small and last_end(holds, card, time) <= time then
        call('UNLINK', holds)
        return 0, 0, true
      end
      local weight = is_released and 1 or WEIGHT_OF_CHARGE
      local most = math.max(math.floor(may_end / weight), LEAST_ENDED)
      -- The ends, and the units of all holds that end then.
      local ends, costs = {}, {}
      repeat
        local size = math.min(BATCH, most - ended)
        local batch = call('ZRANGE', holds, '(0', whole(time), 'BYSCORE', 'LIMIT', '0', whole(size), 'WITHSCORES')
        local members, ids, found = {}, {}, #batch / 2
        for index = 1, found do
          ids[index] = batch[2 * index - 1]
          members[index] = ids[index] .. 'c'
        end
        local scores = found > 0 and call('ZMSCORE', holds, spread(members)) or {}
        for index = 1, found do
          local at, cost = tonumber(batch[2 * index]), units(holds, scores[index], left)
          if at % 1 > 0 then not_holds(holds) end
          left, members[found + index] = left - cost, ids[index]
          if ends[#ends] == at then
            costs[#ends] = costs[#ends] + cost
          else
            ends[#ends + 1], costs[#ends + 1] = at, cost
          end
        end
        if found > 0 then call('ZREM', holds, spread(members)) end
        ended = ended + found
      until found < size or ended >= most
      may_end = may_end - ended * weight
      if makes and left == 0 then
        call('ZADD', holds, '0', head)
      else
        keep(holds, left, head)
      end
      local is_gone = left == 0 and not makes
      if is_released then return left, ended, is_gone end
      local earliest = math.max(0, reached(key, algorithm, parameter))
      for index = 1, #ends do
        local at = math.min(now, math.max(ends[index] - offset, earliest))
        algorithms[algorithm](at, {}, number, number, costs[index], true, limit, window, parameter, false)
        keys[number] = key
      end
      return left, ended, is_gone
    end

    -- Sets the TTL of the holds' key. The last hold ends after `time`; `ahead` is the time that the count reports.
    local function expire_holds(key, is_new, algorithm, time, ahead, limit, window, parameter)
      if algorithm == SLIDING_WINDOW_LOG then
        time = time + window + parameter
      elseif algorithm == SLIDING_WINDOW_COUNTER then
        time = time + 2 * window
      elseif algorithm == FIXED_WINDOW then
        -- The next window of a calendar may be longer, but not twice as long.
        time = time + (parameter > 0 and 2 or 1) * window
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

    -- In place of a count that is not asked: there is room for everything.
    local function no_count(_, times, number, _, asked, mode)
      if mode == 'evaluate' then return asked <= 2^40 end
      keys[number], times[number] = 0, 0
    end

    -- Returns the function of a charge beside holds, whose record is at `position`; that of its holds is at `record`.
    --
    -- Holds may be asked alone, while a slot of a cluster moves and their count may be on another node. Then both keys
    -- are that of the holds, nothing is charged, and a hold is made whether or not it fits: its maker asks the count.
    --
    -- A refund may name a receipt. Once it is done, its hold may have been made anew, and a repeated refund must not
    -- end that one.
    local function beside(algorithm, record, names_receipt)
      local usage, unsettled, ttl, id, actual = unpack('<Bddc8d', runs, record + 1)
      local counts_denial = usage >= COUNT_DENIAL
      if counts_denial then usage = usage - COUNT_DENIAL end
      local run, is_released, is_alone = algorithms[algorithm], unsettled == 1, usage >= ALONE
      if is_alone then usage, run = usage - ALONE, no_count end
      -- Alone, holds that would be charged are still held. A node that gives a slot away creates no key, so a hold is
      -- not made right after the last one has ended.
      local ends_expired = not is_alone or is_released and (usage ~= CHECK or id == NO_HOLD)
      -- The result of the evaluation, which the commit of the same check uses: the units that are held, whether the
      -- charge fits or the hold is open, the time of the holds and its offset, the number of members, and what the head
      -- says: its name, a time that the holds have reached, and one that is not before the last end. Then when the last
      -- hold ends, and the units of the hold that settles.
      local held, fits, time, offset, card, head, at_head, covered, last, settled
      return function(now, times, number, _, cost, mode, limit, window, parameter)
        local key, holds = keys[number], keys[number + 1]
        if mode == 'evaluate' then
          local expires = false
          card = counted == number and tonumber(members) or call('ZCARD', holds)
          held, time, offset, head, covered = 0, now, 0, nil, 0
          if card > 0 then held, expires, time, offset, head, at_head, covered = look_at(holds) end
          if expires or usage ~= CHECK then
            -- A value that is not a count is an error before anything has changed.
            run(now, times, number, number, 0, 'evaluate', limit, window, parameter, false)
          end
          -- Nothing is charged to a count whose key is banned. The evaluation above has recorded its ban.
          if expires and ends_expired and not (rare().met and rare().met[key]) then
            local makes, ended, is_gone = usage == CHECK and id ~= NO_HOLD, nil, nil
            held, ended, is_gone = end_expired(number, algorithm, card, held, time, offset, head, makes, is_released,
              limit, window, parameter)
            card = card - 2 * ended
            if is_gone then time, offset, head, covered = now, 0, nil, 0 end
          end
          if usage == CHECK then
            -- Also for a cost of 0: a value that is not a count is an error before anything has changed.
            local asked = cost > 0 and cost + held or 0
            fits = run(now, times, number, number, asked, 'evaluate', limit, window, parameter, false)
            last = is_released and held > 0 and last_end(holds, card, time) or time
          else
            local ends = held > 0 and tonumber(call('ZSCORE', holds, id))
            fits, last = ends and ends > time or false, time
            if fits and usage == SETTLE then settled = units(holds, call('ZSCORE', holds, id .. 'c'), held) end
            -- A settlement that charges more than was held, and more than fits, is a denial.
            if fits and counts_denial and actual > settled then
              local asked = held - settled + actual
              return run(now, times, number, number, asked, 'evaluate', limit, window, parameter, false)
            end
          end
          return usage ~= CHECK or fits
        end

        if names_receipt and not receipts.committed_at(key) then fits = false end
        -- When the hold that is made or renewed ends.
        local finish = nil
        if usage == CHECK then
          if mode and id == NO_HOLD then
            run(now, times, number, number, cost, true, limit, window, parameter, false)
          elseif mode then
            run(now, times, number, number, 0, false, limit, window, parameter, false)
            held, finish = held + cost, time + ttl
            last = math.max(last, finish)
          else
            run(now, times, number, number, cost, false, limit, window, parameter, false)
          end
        elseif fits and usage == SETTLE then
          held = held - settled
          if held > 0 then call('ZREM', holds, id, id .. 'c') end
          keep(holds, held, head)
          run(now, times, number, number, actual, true, limit, window, parameter, false)
          -- The charge of the settlement may prolong the time for which the charges of other holds count.
          if held > 0 and algorithm == TOKEN_BUCKET then
            expire_holds(holds, false, algorithm, covered - time, times[number], limit, window, parameter)
          end
        else
          run(now, times, number, number, 0, false, limit, window, parameter, false)
          if fits then finish = time + ttl end
        end
        if finish then
          local part, replaced = math.floor(ttl / 64), nil
          local is_new = not head
          if is_new or not (time < at_head + part and finish <= covered) then
            covered = math.min(math.max(finish + part, covered), time + 2^52)
            replaced, head = head, 't' .. pack('<ddd', time, offset, covered)
          end
          if usage == CHECK then
            call('ZADD', holds, whole(-held), head, whole(finish), id, (cost + 1) .. 'e20', id .. 'c')
          else
            call('ZADD', holds, whole(-held), head, whole(finish), id)
          end
          if replaced and replaced ~= head then call('ZREM', holds, replaced) end
          if is_new or replaced or algorithm == TOKEN_BUCKET then
            expire_holds(holds, is_new, algorithm, covered - time, times[number], limit, window, parameter)
          end
        end
        -- The head that was left for a hold that was not made.
        if head and held == 0 and usage == CHECK and not finish then call('UNLINK', holds) end
        keys[number + 1], times[number + 1] = held * 4 + (fits and 1 or 0), math.max(0, last - time)
        if usage == CHECK and held > 0 and algorithm == SLIDING_WINDOW_LOG and not is_alone then
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
    charge_with_holds = function(algorithm, usage, limit, window, parameter, cost, record)
      local HOLDS, EVALUATE, REFUND, SHADOW, HAS_ALTERNATIVE = 8, 2, 4, 16, 64
      if algorithm == HOLDS then return nothing, 0, 0, 0, 0, false, false, false, false end
      local is_shadow, has_alternative, UP_TO = usage >= SHADOW, usage >= HAS_ALTERNATIVE, 38
      if has_alternative then
        usage = usage - HAS_ALTERNATIVE
        is_shadow = usage >= SHADOW
      elseif usage >= UP_TO then
        made[record] = made[record] or beside(algorithm - HOLDS, record)
        return up_to(made[record], false, true), cost, limit, window, parameter, false, true, false, false
      end
      if is_shadow then usage = usage - SHADOW end
      -- A refund of a hold settles it with 0. The time of its commit is 0 if it names a receipt.
      local is_refund = usage == REFUND
      local commits = usage < EVALUATE or is_refund
      local run = made[record]
      if not run then
        run = beside(algorithm - HOLDS, record, is_refund and unpack('<d', runs, record + 34) == 0)
        made[record] = run
      end
      return run, cost, limit, window, parameter, false, commits, false, is_shadow, has_alternative
    end
    return charge_with_holds(...)
  end
end
