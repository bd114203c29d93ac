-- Sliding window log: the step function F(t) = cost admitted up to t, one record per request whatever its cost.
--
-- Let C be the newest cumulative cost. What is spent in (now - window, now] is C - F(now - window), so a cost fits if
-- and only if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target is the
-- one that has to leave: its stamp is the exact Retry-After.
--
-- Kept in a hash: field "h" holds a header and the newest records, up to a chunk of them; full chunks have fields of
-- their own, named by number. Records are 11 bytes: 48 bits of time and 40 of cumulative cost, enough to tell them
-- from the newest, which the header has in full. The header also has the cumulative cost that has settled, which is
-- F(now - window), and the oldest live record, so that most checks read one field and write one. Nothing walks the log:
-- a search gallops from a good guess and then halves.
--
-- A record settles when it leaves the window or, with `count_rejected`, when it lies more than one limit below C.
-- Settling is written down only with a charge, and settled chunks go a few at a time.
--
-- Calls: evaluate 1 (HGET), and 1 more for each chunk that is looked at when the oldest live record has left;
-- commit 1 (HSET) when charged, and 1 (HDEL) for each chunk that has settled, 1 (PEXPIRE) once a window.
-- A denial of a larger cost looks at a chunk or two for its Retry-After.

local function make_log()
  local HEADER = '<ddddddddd'
  local HEADER_SIZE = 72
  local RECORD = '<I6I5'
  local RECORD_SIZE = 11
  -- Small, for the newest chunk is written with every charge; a full one just fits a size class of the allocator
  -- (320 bytes).
  local CHUNK = 28
  local TIMES = 281474976710656 -- 2^48
  local TOTALS = 1099511627776 -- 2^40

  -- The log that is looked at: its key, header and newest chunk, the chunk that has just been filled and is not written
  -- yet, and the last full one that was read. Full chunks never change.
  local key, packed, count, newest, total
  local full, full_records
  local chunk_key, chunk, chunk_records

  -- The stamp and the cumulative cost of a record, by its number.
  local function record(number)
    local index = number % CHUNK
    local wanted = (number - index) / CHUNK
    local at, reached
    if wanted == full then
      at, reached = struct.unpack(RECORD, full_records, 1 + index * RECORD_SIZE)
    elseif (wanted + 1) * CHUNK < count then
      if chunk ~= wanted or chunk_key ~= key then
        chunk_key, chunk, chunk_records = key, wanted, call('HGET', key, integer(wanted))
      end
      at, reached = struct.unpack(RECORD, chunk_records, 1 + index * RECORD_SIZE)
    else
      at, reached = struct.unpack(RECORD, packed, HEADER_SIZE + 1 + index * RECORD_SIZE)
    end
    return newest - (newest - at) % TIMES, total - (total - reached) % TOTALS
  end

  -- The first record from `low` on that is later than `at` and has reached `target`; the newest one is known to be.
  local function seek(low, guess, at, target)
    local high, step = count - 1, 1
    while low < high do
      local found_at, found = record(guess)
      if found_at <= at or found < target then
        low = guess + 1
        guess = math.min(low + step - 1, high - 1)
      else
        high = guess
        guess = math.max(high - step, low)
      end
      step = step * 2
      if step > high - low then guess = math.floor((low + high) / 2) end
    end
    return low
  end

  return function(log, policy, cost, allowed)
    local limit, window, resolution = policy.limit, policy.window, policy.param
    key, full = log, nil
    packed = call('HGET', key, 'h')

    -- What has settled, the oldest live record, its number, the oldest chunk that is there, the end of the TTL.
    local settled, live_at, live, head, oldest, expires, _
    if packed then
      newest, total, settled, live_at, live, head, count, oldest, expires = struct.unpack(HEADER, packed)
    else
      newest, total, settled, live_at, live, head, count, oldest, expires = 0, 0, 0, 0, 0, 0, 0, 0, 0
    end

    -- Clock guard: time does not run backwards for a key. Stamps are rounded up by less than one resolution.
    local at = math.max(now, newest - resolution + 1)
    local horizon = at - window
    if newest <= horizon then
      -- All of it has left, so the count may begin anew.
      newest, total, settled, live, head = 0, 0, 0, 0, count
    elseif live_at <= horizon then
      head = seek(head + 1, head + 1, horizon, 0)
      _, settled = record(head - 1)
      live_at, live = record(head)
    end
    local spent = total - settled
    local fits = cost == 0 or spent + cost <= limit
    if allowed == EVALUATE then return fits end
    if allowed == nil then allowed = fits end

    if cost > 0 and (allowed or (policy.count_rejected and cost <= limit)) then
      local records = ''
      local stamp = math.max(newest, math.ceil(at / resolution) * resolution)
      if head == count then
        if (oldest + 1) * CHUNK < count then
          call('UNLINK', key)
          expires, chunk = 0, nil
        end
        head, count, oldest = 0, 0, 0
      elseif newest == stamp then
        -- The same instant: one record with the larger cost.
        records = string.sub(packed, HEADER_SIZE + 1, -RECORD_SIZE - 1)
        count = count - 1
      elseif count % CHUNK == 0 then
        full, full_records = count / CHUNK - 1, string.sub(packed, HEADER_SIZE + 1)
      else
        records = string.sub(packed, HEADER_SIZE + 1)
      end
      newest, total, spent = stamp, total + cost, spent + cost
      if head == count then live_at, live = newest, total end
      count = count + 1
      records = records .. struct.pack(RECORD, newest % TIMES, total % TOTALS)

      if policy.count_rejected and live <= total - limit then
        -- What `record` reads has to be what is about to be written.
        packed = string.sub(packed or string.rep(' ', HEADER_SIZE), 1, HEADER_SIZE) .. records
        head = seek(head + 1, head + 1, -1, total - limit + 1)
        _, settled = record(head - 1)
        live_at, live = record(head)
        spent = total - settled
      end

      local refresh = expires < newest + window
      if refresh then expires = now + 2 * window + resolution end
      local gone = oldest
      oldest = math.min(math.floor(head / CHUNK), gone + 4)
      packed = struct.pack(HEADER, newest, total, settled, live_at, live, head, count, oldest, expires)
        .. records
      if full then
        call('HSET', key, 'h', packed, integer(full), full_records)
      else
        call('HSET', key, 'h', packed)
      end
      while gone < oldest do
        call('HDEL', key, integer(gone))
        gone = gone + 1
      end
      if refresh then call('PEXPIRE', key, ttl(expires)) end
    end

    -- Microseconds until the cumulative cost `target` has left the window.
    local function wait(target)
      if target <= settled then return 0 end
      if target <= live then return live_at + window - now end
      local last = count - 1
      local guess = head + math.floor((target - live) / (total - live) * (last - head))
      return record(seek(head, math.min(last, guess), -1, target)) + window - now
    end

    if spent == 0 then return fits, limit, -1, 0, 0 end
    local available = spent < limit and limit - spent or 0
    local retry = -1
    if not fits and cost <= limit then retry = wait(total + cost - limit) end
    -- Most often the oldest live record is the next to leave.
    local next_target = total + available + 1 - limit
    local next_unit = next_target > settled and next_target <= live and live_at + window - now or wait(next_target)
    return fits, available, retry, next_unit, newest + window - now
  end
end
