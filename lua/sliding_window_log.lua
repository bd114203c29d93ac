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
