-- Sliding window log: the step function F(t) = cost admitted up to t, one record per request whatever its cost.
--
-- Let C be the newest cumulative cost. What is spent in (now - window, now] is C - F(now - window), so a cost fits if
-- and only if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target is the
-- one that has to leave: its stamp is the exact Retry-After.
--
-- Kept in a hash: field "h" holds a header and the newest records, up to a chunk of them; full chunks have fields of
-- their own, named by number. Records are 11 bytes: 48 bits of time and 40 of cumulative cost, enough to tell them
-- from the newest, which the header has in full. The header also has the newest settled record, which carries
-- F(now - window), and the oldest live one, so that most checks read one field and write one. Nothing walks the log:
-- a search gallops from a good guess and then halves.
--
-- A record settles when it leaves the window or, with `count_rejected`, when it lies more than one limit below C.
-- Settling is written down only with a charge, and settled chunks go a few at a time.
--
-- Calls: evaluate 1 (HGET), and 1 more for each chunk that is looked at when the oldest live record has left;
-- commit 1 (HSET) when charged, and 1 (HDEL) for each chunk that has settled, 1 (PEXPIRE) once a window.
-- A denial of a larger cost looks at a chunk or two for its Retry-After.

local function make_log()
  local HEADER = '<dddddddddd'
  local HEADER_SIZE = 80
  local RECORD = '<I6I5'
  local RECORD_SIZE = 11
  -- Small, for the newest chunk is written with every charge; a full one just fits a size class of the allocator
  -- (320 bytes).
  local CHUNK = 28
  local TIMES = 281474976710656 -- 2^48
  local TOTALS = 1099511627776 -- 2^40

  -- The stamp and the cumulative cost of a record, by its number.
  local function log_record(s, number)
    local index = number % CHUNK
    local chunk = (number - index) / CHUNK
    local packed, offset = s.packed, HEADER_SIZE + 1 + index * RECORD_SIZE
    if (chunk + 1) * CHUNK < s.count then
      if s.chunk ~= chunk then
        s.chunk, s.records = chunk, call('HGET', s.key, integer(chunk))
      end
      packed, offset = s.records, 1 + index * RECORD_SIZE
    end
    local at, total = struct.unpack(RECORD, packed, offset)
    return s.newest - (s.newest - at) % TIMES, s.total - (s.total - total) % TOTALS
  end

  -- The first record from `low` on that is later than `at` and has reached `total`; the newest one is known to be.
  local function log_seek(s, low, guess, at, total)
    local high, step = s.count - 1, 1
    while low < high do
      local found_at, found_total = log_record(s, guess)
      if found_at <= at or found_total < total then
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

  -- Makes `number` the oldest live record, all before it settled.
  local function log_settle(s, number)
    if number > s.head then
      s.settled_at, s.settled = log_record(s, number - 1)
      s.live_at, s.live = log_record(s, number)
      s.head = number
    end
  end

  local function log_spent(s)
    -- A settled record can be live again under a longer window; what came before it is not known, so all counts.
    return s.settled_at <= s.horizon and s.total - s.settled or s.total
  end

  -- Microseconds until the cumulative cost `target` has left the window.
  local function log_wait(s, target)
    local at
    if target <= s.settled then
      if s.settled_at <= s.horizon then return 0 end
      at = s.settled_at
    elseif target <= s.live then
      at = s.live_at
    else
      local share = (target - s.live) / (s.total - s.live)
      local guess = math.min(s.count - 1, s.head + math.floor(share * (s.count - 1 - s.head)))
      at = log_record(s, log_seek(s, s.head, guess, -1, target))
    end
    return at + s.window - s.now
  end

  local function evaluate(s)
    local packed = call('HGET', s.key, 'h')
    s.chunk = nil
    if packed then
      s.packed = packed
      s.newest, s.total, s.settled_at, s.settled, s.live_at, s.live, s.head, s.count, s.oldest_chunk, s.expires =
        struct.unpack(HEADER, packed)
    else
      s.newest, s.total, s.settled_at, s.settled, s.live_at, s.live, s.head, s.count, s.oldest_chunk, s.expires =
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    end
    -- Clock guard: time does not run backwards for a key. Stamps are rounded up by less than one resolution.
    local at = math.max(s.now, s.newest - s.param + 1)
    s.stamp = math.max(s.newest, math.ceil(at / s.param) * s.param)
    s.horizon = at - s.window
    if s.newest <= s.horizon then
      -- All of it has left.
      s.settled_at, s.settled, s.live = s.newest, s.total, s.total
      s.head = s.count
    elseif s.live_at <= s.horizon then
      log_settle(s, log_seek(s, s.head + 1, s.head + 1, s.horizon, 0))
    end
    return log_spent(s) + s.cost <= s.limit
  end

  -- Adds a record and returns the fields to write.
  local function log_append(s)
    local full, chunk
    local records = ''
    if s.head == s.count then
      -- Nothing is live: begin anew, with the settled record alone.
      if s.oldest_chunk * CHUNK + CHUNK < s.count then
        call('UNLINK', s.key)
        s.expires = 0
      end
      s.head, s.count, s.oldest_chunk = 0, 0, 0
    elseif s.newest == s.stamp then
      -- The same instant: one record with the larger cost.
      records = string.sub(s.packed, HEADER_SIZE + 1, -RECORD_SIZE - 1)
      s.count = s.count - 1
    elseif s.count % CHUNK == 0 then
      full, chunk = string.sub(s.packed, HEADER_SIZE + 1), s.count / CHUNK - 1
    else
      records = string.sub(s.packed, HEADER_SIZE + 1)
    end
    s.newest, s.total = s.stamp, s.total + s.cost
    if s.head == s.count then s.live_at, s.live = s.newest, s.total end
    s.count = s.count + 1
    return records .. struct.pack(RECORD, s.newest % TIMES, s.total % TOTALS), full, chunk
  end

  local function commit(s, charged)
    if charged then
      local records, full, chunk = log_append(s)
      -- The one that `log_record` reads while the new header is not known yet.
      s.packed = string.rep(' ', HEADER_SIZE) .. records
      if full then s.chunk, s.records = chunk, full end
      if s.count_rejected and s.live <= s.total - s.limit then
        log_settle(s, log_seek(s, s.head + 1, s.head + 1, -1, s.total - s.limit + 1))
      end
      local refresh = s.expires < s.newest + s.window
      if refresh then s.expires = s.now + 2 * s.window + s.param end
      local gone = s.oldest_chunk
      local keep = math.min(math.floor(s.head / CHUNK), gone + 4)
      s.oldest_chunk = keep
      local packed = struct.pack(HEADER, s.newest, s.total, s.settled_at, s.settled, s.live_at, s.live, s.head, s.count,
        s.oldest_chunk, s.expires) .. records
      if full then
        call('HSET', s.key, 'h', packed, integer(chunk), full)
      else
        call('HSET', s.key, 'h', packed)
      end
      while gone < keep do
        call('HDEL', s.key, integer(gone))
        gone = gone + 1
      end
      if refresh then call('PEXPIRE', s.key, ttl(s.now, s.expires, s.slack)) end
    end
    local spent = log_spent(s)
    local available = math.max(0, s.limit - spent)
    local retry, next_unit, reset = -1, 0, 0
    if s.violated and s.cost <= s.limit then retry = log_wait(s, s.total + s.cost - s.limit) end
    if spent > 0 then
      if available < s.limit then next_unit = log_wait(s, s.total + available + 1 - s.limit) end
      reset = s.newest + s.window - s.now
    end
    return available, retry, next_unit, reset
  end

  return {evaluate = evaluate, commit = commit}
end
