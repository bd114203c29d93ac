-- The script of formats l4, c2, f2 and b3, without refunds: what older processes send to the same server.
-- Shared by all algorithms: the time, and integer arithmetic on doubles. Doubles are exact up to 2^53. The product of a
-- limit and a window in microseconds may exceed that; such a product is divided digit by digit.
--
-- Commands: 1 (TIME), unless the client sends its clock.
--
-- Redis creates the closures of the script, and the locals that they share, in every call, so the script has few of
-- them.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

local now = tonumber(ARGV[1])
local by_server = not now
if by_server then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Returns the time of a key, its offset from the server's time, and whether the offset has just changed.
--
-- If the server's clock is set back, the time of a key continues from where it was, at the rate of the server's clock,
-- so that no key is frozen until the clock has caught up. `offset` is the lead of the key's time, kept with the key;
-- `last` is a time that the key has reached. A changed offset is written also with a denial, or each denial would start
-- from `last` again. The clocks of clients differ, so with a client's clock the time of a key stands still instead.
local function own_time(now, offset, last)
  if not by_server then return now, 0, false end
  local time = now + offset
  if time >= last then return time, offset, false end
  return last, last - now, true
end

-- Sets the TTL of a key to `time` milliseconds. If Redis refuses, a new key is removed, because it has no TTL.
local function expire(key, is_new, time)
  local reply = redis.pcall('PEXPIRE', key, time)
  if type(reply) == 'table' then
    if is_new then call('UNLINK', key) end
    error(reply)
  end
end

-- Returns the exact quotient and remainder of a * b / c, for integers a, b >= 0 and c > 0.
local function muldiv(a, b, c)
  local product = a * b
  if product < 2^53 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division over the digits of `a`, in the largest base whose steps all stay in the exact range.
  local rest = b % c
  local quotient, carry = a * ((b - rest) / c), 0
  local base = 2
  while c * base * 4 <= 2^53 do base = base * 2 end
  local place = 1
  while place * base <= a do place = place * base end
  local digits = 0
  while place >= 1 do
    local step = carry * base + (math.floor(a / place) % base) * rest
    carry = step % c
    digits = digits * base + (step - carry) / c
    place = place / base
  end
  return quotient + digits, carry
end

-- Returns the TTL in milliseconds of a key that is needed for `time` microseconds. A second is added for rounding; with
-- a client's clock a minute is added, because that clock may be behind the server's.
local function ttl(time)
  local slack = by_server and 1000 or 60000
  -- `..` and tostring would round to 14 digits.
  return string.format('%.0f', math.max(0, math.ceil(time / 1000)) + slack)
end
-- Sliding window log: the step function F(t) = cost admitted up to t, with one record per request whatever its cost.
--
-- Let C be the newest cumulative cost. C - F(now - window) is spent in (now - window, now], so a cost fits if and only
-- if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target has to leave: its
-- stamp gives the exact Retry-After.
--
-- The value is a string, read and written in small pieces, because pieces below 64 bytes cost Redis no allocation:
--   0 to 32   up to 3 pending records, older than the newest and not yet in a block;
--   33 to 53  fields that change with each charge: the newest record, and the number of records;
--   54 to 103 fields that change when records settle or the ring grows: the settled cumulative cost, which is
--             F(now - window); the oldest live record and its number; the size of the ring in blocks, and the number of
--             the block that gave it that size; the offset of the key's time; the highest limit that has charged since
--             the log was last empty;
--   128 on    a ring of blocks of 4 records (with this start, 1 024 records just fit an allocation of 12 KiB).
-- Records are 11 bytes, 48 bits of time and 40 of cumulative cost: enough to derive them from the newest, which is kept
-- in full.
--
-- The ring doubles when live records fill it. The place of a block is its number modulo the size, so half of the blocks
-- have to move: one old block with each new one, and a new block never overwrites one that has not moved. No operation
-- walks the log: a search gallops from a guess and then halves.
--
-- A record settles when it leaves the window or, with `count_rejected`, when it lies more than the highest limit below
-- C: a policy with a higher limit may share the log, and still counts what it has admitted. Settling is written only
-- with a charge.
--
-- A ring keeps its size until all records have left; then a large ring is freed (UNLINK).
--
-- Commands: evaluate 1 (GETRANGE), and 1 or a few more (GETRANGE) when the oldest live record has left; commit 1
-- (SETRANGE) when charged, 1 more when records have settled, 1 for a block on every fourth charge and 2 while the ring
-- grows, and 1 (PEXPIRE) in each quarter of a window. A denial of a larger cost also searches the log for its
-- Retry-After, and a charge beyond the limit (a counted rejection, or a lowered limit) for the next unit.

-- Finds the first record from `low` to `high` that is later than `at` and has reached `target`; callers use one of the
-- two conditions. The newest record `high` fulfils it. The search starts at `guess`. Returns the record's number, stamp
-- and cumulative cost, and the cumulative cost `before` it.
local function seek(key, packed, newest, total, size, grown, low, high, guess, at, target, before)
  local found_at, found, step = newest, total, 1
  local blocks = (high - high % 4) / 4
  local block, records
  while low < high do
    local index = guess % 4
    local wanted = (guess - index) / 4
    if wanted ~= block then
      block = wanted
      if block == blocks then
        records = string.sub(packed, 1, 33)
      else
        -- A block that has not moved yet is in its old place.
        local slot = block % ((block >= grown or block < blocks - size / 2) and size or size / 2)
        local from = 128 + slot * 44
        records = call('GETRANGE', key, string.format('%d', from), string.format('%d', from + 43))
      end
    end
    local guess_at, reached = unpack('<I6I5', records, 1 + index * 11)
    guess_at, reached = newest - (newest - guess_at) % 2^48, total - (total - reached) % 2^40
    if guess_at <= at or reached < target then
      low, before = guess + 1, reached
      guess = low + step - 1
      if guess >= high then guess = high - 1 end
    else
      high, found_at, found = guess, guess_at, reached
      guess = high - step
      if guess < low then guess = low end
    end
    step = step * 2
    if step > high - low then guess = math.floor((low + high) / 2) end
  end
  return low, found_at, found, before
end

local function sliding_window_log(key, cost, allowed, now, limit, window, resolution, count_rejected)
  local packed = call('GETRANGE', key, '0', '103')
  local newest, total, count, settled, live_at, live, head, size, grown, offset, highest
  if packed ~= '' then
    newest, total, count, settled, live_at, live, head, size, grown, offset, highest =
      unpack('<ddI5dddI5I4I5dI4', packed, 34)
  else
    newest, total, count, settled, live_at, live, head, size, grown, offset, highest = 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0
  end

  -- The time of a key does not run backwards. Stamps are rounded up by less than one resolution.
  local stepped
  now, offset, stepped = own_time(now, offset, newest - resolution + 1)
  local at = newest - resolution < now and now or newest - resolution + 1
  local horizon = at - window
  -- Whether the fields from 54 on change.
  local changed = stepped
  if newest <= horizon then
    -- All records have left, so the cumulative cost starts at 0 again.
    newest, total, settled, live, head = 0, 0, 0, 0, count
  elseif live_at <= horizon then
    head, live_at, live, settled =
      seek(key, packed, newest, total, size, grown, head + 1, count - 1, head + 1, horizon, 0, live)
    changed = true
  end
  local spent = total - settled
  local fits = cost == 0 or spent + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    local stamp = resolution == 1 and at or math.max(newest, math.ceil(at / resolution) * resolution)
    -- The first charge in each quarter of a window sets the TTL to a window and a quarter. A later record is less than
    -- a quarter newer than this charge, so all records have left the window when the key expires. A clock that is set
    -- back only prolongs the key, because its time continues. With clients' clocks `ttl` adds a minute for clocks that
    -- are behind.
    local quarter = math.max(1, math.floor(window / 4))
    local refresh = head == count or newest < stamp - stamp % quarter
    spent = spent + cost
    -- A counted rejection may itself leave no room for the same cost.
    fits = fits and (allowed or spent + cost <= limit)
    if settled > 2^50 then
      -- Doubles are exact up to 2^53. Records keep only the lower 40 bits, which do not change.
      local excess = settled - settled % 2^40
      total, settled, live, changed = total - excess, settled - excess, live - excess, true
    end
    if head == count then
      -- Frees a large ring.
      if size > 16 then
        call('UNLINK', key)
        packed = ''
      end
      newest, total, head, count, live_at, live, highest = stamp, cost, 0, 1, stamp, cost, limit
      local begun = pack('<ddI5dddI5I4I5dI4', newest, total, 1, 0, live_at, live, 0, 1, 0, offset, highest)
      call('SETRANGE', key, '33', begun)
    else
      if highest < limit then highest, changed = limit, true end
      if newest == stamp then
        -- The same instant: one record with the larger cost.
        total = total + cost
        call('SETRANGE', key, '41', pack('<d', total))
        if head == count - 1 then live, changed = total, true end
      else
        -- The record that was the newest becomes pending, or completes a block.
        local before_at, before, pending = newest % 2^48, total % 2^40, (count - 1) % 4
        newest, total, count = stamp, total + cost, count + 1
        if pending == 0 then
          call('SETRANGE', key, '0', pack('<I6I5ddI6ddI5', before_at, before, 0, 0, 0, newest, total, count))
        elseif pending == 1 then
          call('SETRANGE', key, '11', pack('<I6I5dI3ddI5', before_at, before, 0, 0, newest, total, count))
        elseif pending == 2 then
          call('SETRANGE', key, '22', pack('<I6I5ddI5', before_at, before, newest, total, count))
        else
          -- The ring is written first: if Redis refuses to let it grow, nothing has been charged.
          local block = (count - 5) / 4
          if block - (head - head % 4) / 4 >= size then size, grown, changed = size * 2, block, true end
          -- One old block moves with each new one, in order. The ring can be full again only after `size / 2` new
          -- blocks, and by then all old blocks have moved.
          local old = block - size / 2
          if old < grown and old >= 0 and old % size >= size / 2 then
            local from, to = 128 + old % (size / 2) * 44, 128 + old % size * 44
            local records = call('GETRANGE', key, string.format('%d', from), string.format('%d', from + 43))
            call('SETRANGE', key, string.format('%d', to), records)
          end
          local records = pack('<c0I6I5', string.sub(packed, 1, 33), before_at, before)
          call('SETRANGE', key, string.format('%d', 128 + block % size * 44), records)
          call('SETRANGE', key, '33', pack('<ddI5', newest, total, count))
        end
      end
    end
    if refresh then expire(key, packed == '', ttl(window + quarter + resolution)) end
    if not fits then
      -- The search needs the value as it was written.
      packed = call('GETRANGE', key, '0', '99')
      if count_rejected and live <= total - highest then
        head, live_at, live, settled =
          seek(key, packed, newest, total, size, grown, head + 1, count - 1, head + 1, 0, total - highest + 1, live)
        spent, changed = total - settled, true
      end
    end
    if changed then
      call('SETRANGE', key, '54', pack('<dddI5I4I5dI4', settled, live_at, live, head, size, grown, offset, highest))
    end
  elseif stepped then
    call('SETRANGE', key, '92', pack('<d', offset))
  end

  if spent == 0 then return fits, limit, -1, 0, 0 end

  -- In most cases the oldest live record is the next to leave.
  local available = spent < limit and limit - spent or 0
  local retry, next_unit = -1, live_at + window - now
  if not fits and cost <= limit then
    local target = total + cost - limit
    retry = next_unit
    if target > live then
      local guess = head + math.floor((target - live) / (total - live) * (count - 1 - head))
      local _, leaves =
        seek(key, packed, newest, total, size, grown, head, count - 1, math.min(guess, count - 2), -1, target, settled)
      retry = leaves + window - now
    end
  end
  local target = total + available + 1 - limit
  if target <= settled then
    next_unit = 0
  elseif target > live then
    local _, leaves = seek(key, packed, newest, total, size, grown, head, count - 1, head, -1, target, settled)
    next_unit = leaves + window - now
  end
  return fits, available, retry, next_unit, newest + window - now
end
-- Sliding window counter: two buckets aligned to the epoch. The estimate is
-- floor(previous * (window - elapsed) / window) + current. The value is a packed string: start, previous, current, time
-- of the last charge, offset of the key's time.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

-- Returns the longest time left in a window at which `count` units of the previous window weigh at most `room` units.
local function left_for(count, room, window)
  local quotient, rest = muldiv(room + 1, window, count)
  return math.min(window, rest > 0 and quotient or quotient - 1)
end

-- Returns the microseconds until `wanted` units fit. The units must not fit now.
local function until_room(wanted, previous, current, finish, now, limit, window)
  local room = limit - wanted
  -- In this window, while the older bucket loses weight.
  if current <= room then
    local left = left_for(previous, room - current, window)
    if left > 0 then return finish - left - now end
    -- At the start of the next window, when the older bucket is gone.
    return finish - now
  end
  -- In the next window, in which the current bucket is the older one.
  return finish + window - left_for(current, room, window) - now
end

local function sliding_window_counter(key, cost, allowed, now, limit, window, _, count_rejected)
  local kept, previous, current, last, offset, stepped = 0, 0, 0, 0, 0, nil
  local value = call('GET', key)
  if value then kept, previous, current, last, offset = unpack('<ddddd', value) end
  now, offset, stepped = own_time(now, offset, last)
  -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
  local at = now > kept and now or kept
  local start = at - at % window
  local finish = start + window
  if kept == start - window then
    previous, current = current, 0
  elseif kept ~= start then
    previous, current = 0, 0
  end
  local carried = previous > 0 and muldiv(previous, finish - at, window) or 0
  local fits = cost == 0 or carried + current + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    current = current + cost
    call('SETRANGE', key, '0', pack('<ddddd', start, previous, current, now, offset))
    if not value or kept ~= start then expire(key, not value, ttl(finish + window - now)) end
    fits = fits and (allowed or carried + current + cost <= limit)
  elseif stepped then
    call('SETRANGE', key, '32', pack('<d', offset))
  end

  local spent = carried + current
  if spent == 0 then return fits, limit, -1, 0, 0 end
  local available = spent < limit and limit - spent or 0
  local retry = -1
  if not fits and cost <= limit then retry = until_room(cost, previous, current, finish, now, limit, window) end
  local next_unit = until_room(available + 1, previous, current, finish, now, limit, window)
  local reset = until_room(limit, previous, current, finish, now, limit, window)
  return fits, available, retry, next_unit, reset
end
-- Fixed window, aligned to the epoch. The value is a packed string: start, count, time of the last charge, offset of
-- the key's time.
--
-- Commands: evaluate 1 (GET); commit 1 (SETRANGE) when charged, and 1 (PEXPIRE) once a window.

local function fixed_window(key, cost, allowed, now, limit, window, _, count_rejected)
  local kept, count, last, offset, stepped = 0, 0, 0, 0, nil
  local value = call('GET', key)
  if value then kept, count, last, offset = unpack('<dddd', value) end
  now, offset, stepped = own_time(now, offset, last)
  -- With a client's clock that is behind, the window of the key stays: an earlier window does not return.
  local at = now > kept and now or kept
  local start = at - at % window
  if kept ~= start then count = 0 end
  local fits = cost == 0 or count + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    count = count + cost
    call('SETRANGE', key, '0', pack('<dddd', start, count, now, offset))
    if not value or kept ~= start then expire(key, not value, ttl(start + window - now)) end
    fits = fits and (allowed or count + cost <= limit)
  elseif stepped then
    call('SETRANGE', key, '24', pack('<d', offset))
  end

  if count == 0 then return fits, limit, -1, 0, 0 end
  local finish = start + window - now
  return fits, count < limit and limit - count or 0, (fits or cost > limit) and -1 or finish, finish, finish
end
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
-- The entry of the script: handles many checks in one call and commits each check completely or not.
--
-- KEYS: the key of each charge, in order.
-- ARGV: 1. the client's clock in microseconds, or '' for TIME;
--       2. the policies, packed: algorithm (u8), usage (u8), limit (u32), window (microseconds, double), parameter
--          (double: the resolution of a log in microseconds, the burst of a bucket);
--       3. the charges, packed, in the order of KEYS: the number of charges of the check that starts here (u8, 0 inside
--          a check), the index of the policy from 0 (u16), cost (u32);
--       4. only if charges are refunded: for each policy the time of the commit (microseconds, double).
-- Reply: one string: the time used (double); per charge fits (u8, 0 or 1), available (u32), retry_after (-1 = none),
--        next unit and reset (microseconds, doubles). A check that failed has 2 (u8) and its error (length as u32,
--        text) instead, and has charged nothing, unless a key held another type of value or a command was not
--        permitted. Other checks are not affected. A check is allowed if all of its charges fit.
--
-- An algorithm is one function of a key, a cost and a mode. Mode 'evaluate' only returns whether the cost fits and
-- writes nothing. Modes true and false commit the verdict on the whole check. Mode nil evaluates and commits in one
-- step, for a check with a single charge. So a check of several charges reads its values twice, within one script.
--
-- A policy that is used in two ways is sent twice. `src/store/redis/call/protocol.rs` has the same numbers of
-- algorithms and usages:
--   COMMIT          commits the charge if the check fits;
--   COUNT_REJECTED  flag: commits the charge also if the check is denied;
--   EVALUATE        commits nothing, except as COUNT_REJECTED demands: another slot has denied the check;
--   REFUND          refunds an earlier commit;
--   BAN             counts the denials of the previous charge. It takes part in the evaluation, and commits when the
--                   previous charge does not fit. The last denial that fits also commits the whole limit: the ban
--                   lasts until these units have left the window.

local keys, charge = KEYS, 1

-- Handles the checks from `charge` on. The replies replace the keys, in a table that has its size already.
local function handle_all(policies, charges)
  local policy, run, limit, window, parameter, commits, is_ban, extra
  while charge <= #keys do
    local allowed, unfit, banned = nil, nil, nil
    local size = string.byte(charges, charge * 7 - 6)
    -- A check with a single charge evaluates and commits in one pass.
    for pass = size == 1 and 2 or 1, 2 do
      for number = charge, charge + size - 1 do
        local index, cost = unpack('<HI', charges, number * 7 - 5)
        if index ~= policy then
          policy = index
          -- The constants are local to this block, because each further register of the function makes each call
          -- slower.
          local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW = 1, 2, 3
          local COUNT_REJECTED, EVALUATE, REFUND, BAN = 1, 2, 4, 8
          local algorithm, usage
          algorithm, usage, limit, window, parameter = unpack('<BBIdd', policies, 1 + index * 22)
          run = algorithm == SLIDING_WINDOW_LOG and sliding_window_log
            or algorithm == SLIDING_WINDOW_COUNTER and sliding_window_counter
            or algorithm == FIXED_WINDOW and fixed_window or token_bucket
          -- `extra` is whether rejections count or, for a refund, the time of the commit.
          commits, is_ban, extra = usage < EVALUATE, usage == BAN, usage % 2 == COUNT_REJECTED
          if usage == REFUND then run, extra = refund[algorithm], unpack('<d', ARGV[4], 1 + index * 8) end
        end
        if pass == 1 then
          local fits = run(keys[number], cost, 'evaluate', now, limit, window, parameter)
          allowed = fits and allowed ~= false
          if not fits then
            -- `unfit`: the charges that do not fit. `banned`: the charges whose count of denials is full.
            unfit = unfit or {}
            unfit[number] = true
            if is_ban then
              banned = banned or {}
              banned[number - 1] = true
            end
          end
        else
          local key, commit = keys[number], commits and allowed
          if is_ban then
            -- `unfit ~= nil` makes `commit` a boolean, because nil is another mode.
            commit = unfit ~= nil and unfit[number - 1] == true and cost > 0
              and run(key, cost, 'evaluate', now, limit, window, parameter)
          end
          local fits, available, retry, next_unit, reset =
            run(key, cost, commit, now, limit, window, parameter, not (banned and banned[number]) and extra)
          if is_ban and commit and available == 0 then
            fits, available, retry, next_unit, reset = run(key, limit, true, now, limit, window, parameter)
          end
          keys[number] = pack('<BIddd', fits and 1 or 0, available, retry, next_unit, reset)
        end
      end
    end
    charge = charge + size
  end
end

while charge <= #keys do
  local ok, failure = pcall(handle_all, ARGV[2], ARGV[3])
  if not ok then
    -- Redis 7 raises a table, older servers raise a string.
    local message = type(failure) == 'table' and failure.err or tostring(failure)
    local size = string.byte(ARGV[3], charge * 7 - 6)
    for number = charge, charge + size - 1 do keys[number] = '' end
    local FAILED = 2
    keys[charge] = pack('<BIc0', FAILED, #message, message)
    charge = charge + size
  end
end
keys[1] = pack('<d', now) .. keys[1]
return table.concat(keys)
