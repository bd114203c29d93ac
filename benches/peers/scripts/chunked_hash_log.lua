-- An earlier design of lua/sliding_window_log.lua with the same interface. Its memory per record is the same at any
-- length (13 bytes), but it is slower: a hash occupies twice as many cache lines as a string, and a chunk of records is
-- read and written as a whole.
--
-- Sliding window log: the step function F(t) = cost admitted up to t, one record per request whatever its cost.
--
-- Let C be the newest cumulative cost. The cost spent in (now - window, now] is C - F(now - window), so a cost fits if
-- and only if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target must
-- expire before the cost fits: its stamp gives the exact Retry-After.
--
-- The state is a hash. Field "h" holds a header and up to GROUP newest records. Every charge reads and writes "h", so
-- "h" is kept short. Older records are stored in chunks, in fields named by the number of the chunk. A record takes 11
-- bytes: 48 bits of time and 40 bits of cumulative cost, relative to the newest record, which the header holds in full.
-- The header also holds the settled cumulative cost, which is F(now - window), and the oldest live record. No operation
-- reads the whole log: a search gallops from a good guess and then bisects.
--
-- A record settles when it leaves the window or, with `count_rejected`, when it lies more than one limit below C.
-- Settling is written only with a charge, which deletes at most four settled chunks.
--
-- Calls: evaluate 1 (HGET), and 1 more for each inspected chunk if the oldest live record has left the window; commit 1
-- (HSET) when charged, 1 (HGET) for a group that joins a chunk, 1 (HDEL) for each settled chunk, and 1 (PEXPIRE) once
-- per window. A denial of a larger cost inspects one or two chunks for its Retry-After.

-- Maximum number of records in "h" and in a chunk. A full chunk exactly fits a size class of the allocator (320 bytes).
local GROUP, CHUNK = 7, 28

-- Finds the first record from `low` to `high` that is later than `at` and whose cumulative cost reaches `target`.
-- Record `high`, the newest, always qualifies. Returns the record's number, stamp and cumulative cost, and the
-- cumulative cost `before` the record.
local function seek(log, packed, newest, total, low, high, guess, at, target, before)
  local first_packed = high - high % GROUP
  local found_at, found, step = newest, total, 1
  local chunk, records
  while low < high do
    local index, from, guess_at, reached = guess % CHUNK, packed, nil, nil
    if guess >= first_packed then
      index = 63 + 1 + (guess - first_packed) * 11
    else
      if chunk ~= guess - index then
        chunk = guess - index
        records = call('HGET', log, string.format('%d', chunk / CHUNK))
      end
      from, index = records, 1 + index * 11
    end
    guess_at, reached = unpack('<I6I5', from, index)
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
  local packed = call('HGET', key, 'h')

  -- Header: stamp and cumulative cost of the newest record, settled cost, stamp and cumulative cost of the oldest live
  -- record, end of the TTL, number of the oldest live record, number of records since the log was last empty, oldest
  -- stored chunk.
  local newest, total, settled, live_at, live, expires, head, count, oldest = 0, 0, 0, 0, 0, 0, 0, 0, 0
  if packed then
    newest, total, settled, live_at, live, expires, head, count, oldest = unpack('<ddddddI5I5I5', packed)
  end

  -- Time never runs backwards for a key. Stamps are rounded up by less than one resolution.
  local at = newest - resolution < now and now or newest - resolution + 1
  local horizon = at - window
  if newest <= horizon then
    -- All records have left the window: the cumulative cost restarts at 0.
    newest, total, settled, live, head = 0, 0, 0, 0, count
  elseif live_at <= horizon then
    head, live_at, live, settled = seek(key, packed, newest, total, head + 1, count - 1, head + 1, horizon, 0, live)
  end
  local spent = total - settled
  local fits = cost == 0 or spent + cost <= limit
  if allowed == 'evaluate' then return fits end
  if allowed == nil then allowed = fits end

  if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
    local stamp = resolution == 1 and at or math.max(newest, math.ceil(at / resolution) * resolution)
    local records, full, full_records = '', nil, nil
    if head == count then
      if count > GROUP then
        call('UNLINK', key)
        expires = 0
      end
      head, count, oldest = 0, 0, 0
    elseif newest == stamp then
      -- Charges at the same stamp share one record.
      records = string.sub(packed, 64, -12)
      count = count - 1
    else
      records = string.sub(packed, 64)
      if count % GROUP == 0 then
        local index = (count - GROUP) % CHUNK
        full, full_records, records = string.format('%d', (count - GROUP - index) / CHUNK), records, ''
        if index > 0 then full_records = call('HGET', key, full) .. full_records end
        call('HSET', key, full, full_records)
      end
    end
    newest, total, spent = stamp, total + cost, spent + cost
    if head == count then live_at, live = newest, total end
    count = count + 1

    if count_rejected and live <= total - limit then
      -- The search must read the records that this charge writes. The newest record is passed as arguments.
      packed = string.rep(' ', 63) .. records
      head, live_at, live, settled =
        seek(key, packed, newest, total, head + 1, count - 1, head + 1, 0, total - limit + 1, live)
      spent = total - settled
    end

    local refresh = expires < newest + window
    if refresh then expires = now + 2 * window + resolution end
    local gone = oldest
    if head >= oldest + CHUNK then oldest = math.min(head - head % CHUNK, gone + 4 * CHUNK) end
    packed = pack('<ddddddI5I5I5c0I6I5', newest, total, settled, live_at, live, expires, head, count, oldest, records,
      newest % 2^48, total % 2^40)
    call('HSET', key, 'h', packed)
    while gone < oldest do
      call('HDEL', key, string.format('%d', gone / CHUNK))
      gone = gone + CHUNK
    end
    if refresh then call('PEXPIRE', key, ttl(expires - now)) end
  end

  if spent == 0 then return fits, limit, -1, 0, 0 end

  local available = spent < limit and limit - spent or 0
  local last = count - 1
  -- In most cases the next unit comes back when the oldest live record leaves the window.
  local retry, next_unit = -1, live_at + window - now
  if not fits and cost <= limit then
    local target = total + cost - limit
    retry = next_unit
    if target > live then
      local guess = math.min(last, head + math.floor((target - live) / (total - live) * (last - head)))
      local _, leaves = seek(key, packed, newest, total, head, last, guess, -1, target, settled)
      retry = leaves + window - now
    end
  end
  local target = total + available + 1 - limit
  if target <= settled then next_unit = 0 elseif target > live then
    local _, leaves = seek(key, packed, newest, total, head, last, head, -1, target, settled)
    next_unit = leaves + window - now
  end
  return fits, available, retry, next_unit, newest + window - now
end
