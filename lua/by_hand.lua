-- Changes of a count by hand: bans, and units that are charged or given back without a check. A change has the
-- parameters of an algorithm, with the duration of a ban as the last one. It reports 4 * n + 1 instead of the number of
-- a charge: n is the number of units that were charged or given back, or 1 if a ban has ended.
--
-- A ban that is in the way is lifted before the change, and then made again with the same end. `lua/rare.lua` describes
-- the value of a key that is banned. The count beside the ban is evaluated before: a value that is not a count is an
-- error before anything has changed.
--
-- Units that are given back leave a log from its newest record on, as if these charges had not been made; of the last
-- one, only a part may leave. No step walks the log, but while its ring grows, up to half of it is copied at once.
--
-- Commands, beside 1 (GETRANGE) for the ban and those of an evaluation:
--   record  those of a commit
--   credit  1 (GETRANGE) and 1 (SETRANGE); the log: 1 (GETRANGE), those of a search, 1 (SETRANGE or UNLINK), and 3
--           (GETRANGE twice, SETRANGE) if the ring loses blocks
--   ban     1 (GETRANGE), 2 (SETRANGE, PEXPIRE)
--   up to   those of an evaluation of the whole cost, of up to 41 smaller ones if that does not fit, and of a commit
--   unban   1 (SETRANGE or UNLINK), and 2 (SETRANGE, PEXPIRE) unless the value is a log; 2 (UNLINK) for the denials and
--           the last ban
--
-- A charge of as much as fits is a check, and here because few calls have one. It finds the most units that one
-- evaluation admits by halving. So it needs no more of an algorithm than that a larger cost never fits where a smaller
-- one does not, and it works beside open holds.
--
-- The functions below are created only in calls that change counts by hand.

local changes, up_to

if used % 128 >= 64 then
  local call, pack, unpack = redis.call, struct.pack, struct.unpack
  local RECORD, CREDIT, BAN_BY_HAND, UNBAN, FORGET_DENIALS, UP_TO = 32, 33, 34, 35, 36, 38

  local function credit_log(key, units, _, window, resolution)
    local packed = call('GETRANGE', key, '44', '197')
    if packed == '' then return 0 end
    local functions = ring()
    local seek, read_block, shrink = functions.seek, functions.read_block, functions.shrink
    local size, grown, _, head, live, highest = unpack('<I3I5I5I5I6I6', packed)
    local settled, live_at, newest, total, count = unpack('<I6ddI6I5', packed, 31)
    local offset = highest == 0 and unpack('<d', packed, 141) or 0
    live, total = settled + (live - settled) % 2^48, settled + (total - settled) % 2^48
    local time = rare().own_time(now, offset, newest - resolution + 1)
    local horizon = (newest - resolution < time and time or newest - resolution + 1) - window
    if newest <= horizon then return 0 end
    if live_at <= horizon then
      head, live_at, live, settled =
        seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, horizon, 0, live, true)
    end
    local credited = math.min(units, total - settled)
    total = total - credited
    if settled == total then
      call('UNLINK', key)
      return credited
    end
    -- The record that reaches the total that is left becomes the newest one.
    local last, at = seek(key, newest, total + credited, size, grown, head, count - 1, math.max(head, count - 2), -1,
      total, settled, true)
    if last == head then live_at, live = at, total end
    local blocks, full, pending = (count - 1 - (count - 1) % 8) / 8, (last - last % 8) / 8, ''
    if full < blocks then
      -- A block of the ring that loses records holds the pending ones.
      local block = read_block(key, full, blocks, size, grown, true)
      if #block < 88 then return 0 end
      pending = string.sub(block, 12)
      size, grown = shrink(key, full, blocks, size, grown, head)
    end
    -- The highest limit stays: what it admitted may still be in the log. The TTL stays as well, and a later charge sets
    -- it again. The copy may have records that have left.
    call('SETRANGE', key, '44', pack('<I3I5I5I5I6I6I6ddI6I5', size, grown, 0, head, live, highest, settled, live_at, at,
      total, last + 1) .. pending)
    return credited
  end

  local function credit_counter(key, units, _, window)
    local value = call('GETRANGE', key, '0', '39')
    if value == '' then return 0 end
    local kept, previous, current, last, offset = unpack('<ddddd', value)
    local time = rare().own_time(now, offset, last)
    local at = time > kept and time or kept
    local start = at - at % window
    if kept == start then
      local credited = math.min(units, current)
      local more = math.min(units - credited, previous)
      call('SETRANGE', key, '8', pack('<dd', previous - more, current - credited))
      return credited + more
    end
    if kept ~= start - window then return 0 end
    -- The buckets stay where they are, because the next charge in a new window sets the TTL.
    local credited = math.min(units, current)
    call('SETRANGE', key, '16', pack('<d', current - credited))
    return credited
  end

  local function credit_window(key, units, _, window, calendar_start)
    local value = call('GETRANGE', key, '0', '39')
    if value == '' then return 0 end
    local kept, count, last, offset = unpack('<dddd', value)
    local time = rare().own_time(now, offset, last)
    local at = time > kept and time or kept
    -- The value of a calendar window has its end.
    local goes_on = kept == at - at % window
    if calendar_start > 0 then goes_on = time < kept end
    if not goes_on then return 0 end
    local credited = math.min(units, count)
    call('SETRANGE', key, '8', pack('<d', count - credited))
    return credited
  end

  local function credit_bucket(key, units, limit, window)
    local value = call('GETRANGE', key, '0', '43')
    if value == '' then return 0 end
    local arrival, fraction, parts, _, last, offset = unpack('<dI6I6ddd', value)
    local time = rare().own_time(now, offset, last)
    if arrival < time then return 0 end
    if parts ~= limit then
      local converted, remainder = muldiv(fraction, limit, parts)
      fraction = remainder > 0 and converted + 1 or converted
      if fraction == limit then arrival, fraction = arrival + 1, 0 end
    end
    -- The units that are missing in the bucket, rounded up.
    local missing, rest = muldiv(limit, arrival - time, window)
    missing = missing + math.ceil((rest + fraction) / window)
    local whole, part = muldiv(units, window, limit)
    arrival, fraction = arrival - whole, fraction - part
    if fraction < 0 then arrival, fraction = arrival - 1, fraction + limit end
    if arrival < time then arrival, fraction = time, 0 end
    call('SETRANGE', key, '0', pack('<dI6I6', arrival, fraction, limit))
    return math.min(units, missing)
  end

  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
  local credits = {credit_log, credit_counter, credit_window, credit_bucket}

  -- Returns the function that makes the changes of a usage to the counts of an algorithm. `together`: of a charge in a
  -- check of several charges.
  changes = function(usage, algorithm, together)
    if usage >= UP_TO then return up_to(algorithms[algorithm], usage % 2 == 1, together) end
    local run, credit = algorithms[algorithm], credits[algorithm]
    return function(_, _, from, to, units, mode, limit, window, parameter, duration)
      local bans, asked = rare().bans(), usage == FORGET_DENIALS and 1 or 0
      for number = from, to do
        local key, changed = keys[number], 0
        local fits = bans.evaluate(run, number, asked, limit, window, parameter)
        -- Only of a check of several charges, one by one.
        if mode == 'evaluate' then return true end
        local ends, lasts = bans.lift(key, bans.lengths[algorithm])
        if usage == RECORD then
          run(now, {}, number, number, units, true, limit, window, parameter, false)
          changed = units
        elseif usage == CREDIT then
          changed = credit(key, units, limit, window, parameter)
        elseif usage == BAN_BY_HAND then
          ends, lasts = now + duration, duration
        elseif ends then
          ends, changed = nil, 1
        elseif usage == FORGET_DENIALS and not fits then
          changed = 1
        end
        if usage == FORGET_DENIALS then call('UNLINK', key) end
        if ends then bans.ban(key, ends, lasts, algorithm, limit, window, parameter) end
        keys[number], times[number] = changed * 4 + 1, 0
      end
    end
  end

  -- The units that fit, by number of a charge.
  local most = {}

  -- Returns the function of a charge whose algorithm, or whose function beside holds, is `run`. It reports what `run`
  -- reports of the units that are charged, or of a cost of 1 that does not fit, and then the number of charged units.
  -- `together`: the charge is part of a check of several charges.
  up_to = function(run, counts_rejected, together)
    local function fits(now, times, number, cost, limit, window, parameter)
      return run(now, times, number, number, cost, 'evaluate', limit, window, parameter, false)
    end

    return function(now, times, from, to, cost, mode, limit, window, parameter, extra)
      for number = from, to do
        if mode == 'evaluate' or not together then
          -- A cost that is wrong ends too: halving needs whole numbers.
          local whole = math.floor(math.min(cost, 2^40 + 1))
          local fitting, beyond, asked = 0, whole + 1, whole
          while beyond - fitting > 1 do
            if fits(now, times, number, asked, limit, window, parameter) then fitting = asked else beyond = asked end
            -- If not even one unit fits, the second evaluation says so: denials are not remembered, and may be many.
            asked = fitting == 0 and 1 or math.floor((fitting + beyond) / 2)
          end
          most[number] = fitting
          -- A charge beside holds commits what it has evaluated last.
          fits(now, times, number, math.max(fitting, 1), limit, window, parameter)
          if mode == 'evaluate' then return fitting > 0 end
        end
        local units = most[number]
        local commits = mode
        if not together then
          -- While a check meets a ban by hand, nothing is charged or counted.
          commits, extra = units > 0 and not rare().met, counts_rejected and not rare().met
        end
        if not commits then units = 0 end
        run(now, times, number, number, math.max(units, 1), commits, limit, window, parameter, extra)
        times[#times + 1] = units
      end
    end
  end
end
