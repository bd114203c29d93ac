-- Refunds a check that was committed in one slot of a cluster and is not admitted. The counts become what they would be
-- without the commit. A refund has the parameters of an algorithm, with the time of the commit as the last one.
--
-- No refund leads to more than the limit, because a refund removes exactly one commit. A commit that is no longer found
-- stays.
--
-- A commit in one of several slots leaves a receipt: a key of its own in that slot, which expires after some seconds. A
-- refund that names the receipt has 0 as the time of the commit, and finds the time there. It may be sent again,
-- because it also marks the receipt. It may overtake its commit, because a check whose receipt exists is not committed.
-- The value is 'c', the time of the commit (double), the keys of shadow charges that did not fit, each between two line
-- feeds, and the windows of calendars: each key between two carriage returns, and the end of its window (double). The
-- client that refunds may have other rules of the zone than the one that has begun the window. It begins with 'r' once
-- the commit is refunded.
--
-- Commands: 2 (GETRANGE) and 1 (SETRANGE). The log: 2 (GETRANGE) and 1 (SETRANGE), 2 (GETRANGE, SETRANGE) for each
-- block of records that are newer than the commit, and 2 if the ring was growing; or 1 (UNLINK) if no other record is
-- live. The receipt: 3 (GETRANGE, SETRANGE, PEXPIRE), with the commit and with the refund, and 1 (GETRANGE) for each
-- window of a calendar with the commit; 1 (GETRANGE) with a denied check.
--
-- The functions below are created only in calls with receipts or refunds.

local refunds, receipts

if used % 32 >= 16 then
  local call, pack, unpack = redis.call, struct.pack, struct.unpack

  -- The number of newest records that are searched, and rewritten if the commit is found. The busiest key writes this
  -- many in a few milliseconds.
  local depth = 256

  local function refund_log(key, cost, at, _, _, resolution)
    local packed = call('GETRANGE', key, '44', '197')
    if packed == '' then return end
    local functions = ring()
    local size, grown, _, head, live, highest = unpack('<I3I5I5I5I6I6', packed)
    local settled, live_at, newest, total, count = unpack('<I6ddI6I5', packed, 31)
    local offset = highest == 0 and unpack('<d', packed, 141) or 0
    live, total = settled + (live - settled) % 2^48, settled + (total - settled) % 2^48

    local blocks, read = (count - 1 - (count - 1) % 8) / 8, {}
    -- Returns the stamp and the cumulative cost of a record.
    local function record(number)
      if number == count - 1 then return newest, total end
      local index = number % 8
      local block = (number - index) / 8
      read[block] = read[block] or functions.read_block(key, block, blocks, size, grown, true)
      -- A value without the wanted records: the commit is not found.
      if #read[block] < 88 then return -1, math.huge end
      local stamp, reached = unpack('<I6I5', read[block], 78 - index * 11)
      return newest - (newest - stamp) % 2^48, settled + 1 + (reached - settled - 1) % 2^40
    end

    local stamp = math.ceil((at + offset) / resolution) * resolution
    local index, found, reached, before = count - 1, newest, total, settled
    while found > stamp and index > head and count - index < depth do
      index = index - 1
      found, reached = record(index)
    end
    if index > head then _, before = record(index - 1) end
    local rest = reached - before - cost
    if found ~= stamp or rest < 0 then return end
    -- The record is removed and later ones move up, unless it has the cost of other commits at the same instant.
    local removed = rest == 0 and 1 or 0
    if removed == 1 and head == count - 1 then return call('UNLINK', key) end

    -- All records from `index` on are rewritten, with their blocks, because one in a block may become a pending one.
    local left = count - removed
    local full = (left - 1 - (left - 1) % 8) / 8
    local first = math.min(index - index % 8, full * 8)
    local stamps, records = {}, {}
    for number = first, left - 1 do
      local stamp, reached = record(number < index and number or number + removed)
      if number >= index then reached = reached - cost end
      stamps[number], records[number] = stamp, pack('<I6I5', stamp % 2^48, reached)
      if number == head and index == head then live_at, live = stamp, reached end
    end
    -- Returns the records from `from` to `to`, in reverse order.
    local function reversed(from, to)
      local joined = ''
      for number = from, to do joined = records[number] .. joined end
      return joined
    end

    if full < blocks then
      -- The last block is dissolved. When it was added, an old block was moved and the ring may have grown: both are
      -- undone.
      local old = full - size / 2
      if old < grown and old >= 0 and old % size >= size / 2 then
        functions.move_block(key, old % size, old % (size / 2))
      end
      if full == grown and size > 1 then size, grown = size / 2, 0 end
    end
    for block = first / 8, full - 1 do
      functions.write(key, functions.place(block, full, size, grown), reversed(block * 8, block * 8 + 7))
    end
    -- The highest limit stays: what it admitted is still in the log. The TTL stays as well: the remaining records are
    -- no newer than the record that set the TTL, and a later charge sets it again. The copy has lost its records.
    local pending = reversed(full * 8, left - 2)
    call('SETRANGE', key, '44', pack('<I3I5I5I5I6I6I6ddI6I5', size, grown, 0, head, live, highest, settled, live_at,
      stamps[left - 1], total - cost, left) .. string.rep('-', 77 - #pending) .. pending)
  end

  local function refund_counter(key, cost, at, _, window)
    local value = call('GETRANGE', key, '0', '39')
    if value == '' then return end
    local start, previous, current, _, offset = unpack('<ddddd', value)
    at = at + offset
    -- With a client's clock that is behind, the older bucket weighs less, so the refund is too small.
    if at - at % window == start then
      if current >= cost then call('SETRANGE', key, '16', pack('<d', current - cost)) end
    elseif at - at % window == start - window then
      if previous >= cost then call('SETRANGE', key, '8', pack('<d', previous - cost)) end
    end
  end

  -- `finish` is the end of the window in which the commit was made, of which only receipts know.
  local function refund_window(key, cost, at, _, window, calendar_start, finish)
    local value = call('GETRANGE', key, '0', '39')
    if value == '' then return end
    local kept, count, _, offset = unpack('<dddd', value)
    at = at + offset
    local start = at - at % window
    -- The value of a calendar window has its end.
    if calendar_start > 0 then start = finish or at >= calendar_start and calendar_start + window end
    if kept == start and count >= cost then call('SETRANGE', key, '8', pack('<d', count - cost)) end
  end

  local function refund_bucket(key, cost, at, limit, window)
    local value = call('GETRANGE', key, '0', '43')
    if value == '' then return end
    local arrival, fraction, parts, _, last, offset = unpack('<dI6I6ddd', value)
    local whole, rest = muldiv(cost, window, limit)
    -- The last charge was made under another limit, whose fraction has other parts. Less than a microsecond is not
    -- refunded.
    if parts ~= limit then rest = 0 end
    -- Without the commit the bucket may have been full until the last charge, and a full bucket loses what flows in.
    local since = last - at - offset
    whole = whole - since
    if since < 0 or whole < 0 then return end
    arrival, fraction = arrival - whole, fraction - rest
    if fraction < 0 then arrival, fraction = arrival - 1, fraction + limit end
    call('SETRANGE', key, '0', pack('<dI6', arrival, fraction))
  end

  -- What the receipt of a refund says: the time of the commit, nothing without one, and the keys behind it.
  local committed, noted = nil, ''

  -- Both take the parameters of an algorithm, with the time-to-live in place of the window.
  receipts = {
    -- Returns the time of the commit of a key that a refund undoes, if the receipt has one.
    committed_at = function(key)
      if committed and not string.find(noted, '\n' .. key .. '\n', 1, true) then return committed end
    end,
    -- The keys of calendar windows that the next commit charges, and those that it leaves out.
    calendars = {},
    left_out = '',
    commit = function(now, times, number, _, _, mode, _, ttl)
      if mode == 'evaluate' then return call('GETRANGE', keys[number], '0', '0') == '' end
      if mode then
        local windows = ''
        for _, key in ipairs(receipts.calendars) do
          windows = windows .. '\r' .. key .. '\r' .. call('GETRANGE', key, '0', '7')
        end
        call('SETRANGE', keys[number], '0', 'c' .. pack('<d', now) .. receipts.left_out .. windows)
        expire(keys[number], true, ttl)
      end
      keys[number], times[number] = mode and 1 or 0, 0
    end,
    refund = function(_, times, number, _, _, mode, _, ttl)
      local key = keys[number]
      if mode == 'evaluate' then
        -- No receipt is longer: a check has at most 255 keys.
        local value = call('GETRANGE', key, '0', '262143')
        committed, noted = nil, ''
        if #value >= 9 and string.sub(value, 1, 1) == 'c' then
          committed, noted = unpack('<d', value, 2), string.sub(value, 10)
        end
        return true
      end
      local is_new = call('GETRANGE', key, '0', '0') == ''
      call('SETRANGE', key, '0', 'r')
      expire(key, is_new, ttl)
      keys[number], times[number] = 1, 0
    end,
    -- Returns the function that handles checks of one charge and a receipt, packed from `position` on:
    -- `check_together`, or a function that does the same in one pass.
    of_one_charge = function(position, width, check_together)
      local COUNT_REJECTED, SHADOW, RECEIPT = 1, 16, 16
      local algorithm, usage, limit, window, parameter, cost = unpack('<BBdddd', ARGV[1], position)
      local second, _, _, ttl = unpack('<BBdd', ARGV[1], position + width)
      if second ~= RECEIPT or usage % SHADOW > COUNT_REJECTED then return check_together end
      local run = algorithm == 1 and sliding_window_log or algorithm == 2 and sliding_window_counter
        or algorithm == 3 and fixed_window or token_bucket
      return function(first, size)
        if call('GETRANGE', keys[first + 1], '0', '0') ~= '' then return check_together(first, size, position, width) end
        local calendars = {}
        if algorithm == 3 and parameter > 0 then calendars[1] = keys[first] end
        run(now, times, first, first, cost, nil, limit, window, parameter, usage % SHADOW == COUNT_REJECTED)
        receipts.left_out, receipts.calendars = '', calendars
        receipts.commit(now, times, first + 1, nil, nil, keys[first] % 2 == 1, nil, ttl)
      end
    end,
  }

  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
  refunds = {}
  for algorithm, undo in ipairs({refund_log, refund_counter, refund_window, refund_bucket}) do
    refunds[algorithm] = function(now, times, from, to, cost, mode, limit, window, parameter, at)
      for number = from, to do
        -- A value that is not a count, and a ban by hand, are errors before any charge of the check has changed.
        -- A calendar window that has passed is no error.
        local evaluated = algorithm == 3 and 0 or parameter
        algorithms[algorithm](now, times, number, number, 0, 'evaluate', limit, window, evaluated, false)
        if mode ~= 'evaluate' then
          local key, time, finish = keys[number], at, nil
          if at == 0 then
            time = receipts.committed_at(key)
            local _, behind = string.find(noted, '\r' .. key .. '\r', 1, true)
            if behind and #noted >= behind + 8 then finish = unpack('<d', noted, behind + 1) end
          end
          if time and cost > 0 then undo(key, cost, time, limit, window, parameter, finish) end
          keys[number], times[number] = 1, 0
        end
      end
      return true
    end
  end
end
