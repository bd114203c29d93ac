-- Refunds a check that was committed in one slot of a cluster and denied in another. The counts become what they would
-- be without the commit. A refund has the parameters of an algorithm, with the time of the commit as the last one.
--
-- No refund leads to more than the limit, because a refund removes exactly one commit. A commit that is no longer found
-- stays.
--
-- Commands: 2 (GET) and 1 (SETRANGE). The log: 2 (GETRANGE) and 1 (SETRANGE), 2 (GETRANGE, SETRANGE) for each block of
-- records that are newer than the commit, and 2 if the ring was growing; or 1 (UNLINK) if no other record is live.
--
-- The functions below are created only in calls that refund.

local refunds

if used % 32 >= 16 then
  local call, pack, unpack = redis.call, struct.pack, struct.unpack

  -- The number of newest records that are searched, and rewritten if the commit is found. The busiest key writes this
  -- many in a few milliseconds.
  local depth = 256

  local function refund_log(key, cost, at, _, _, resolution)
    local packed = call('GETRANGE', key, '40', '176')
    if packed == '' then return end
    local ring = rare()
    local size, grown, _, head, live, highest = unpack('<I3I5I5I5I4I4', packed)
    local settled, live_at, newest, total, count = unpack('<I4ddI4I5', packed, 27)
    local offset = highest == 0 and unpack('<d', packed, 126) or 0
    live, total = settled + (live - settled) % 2^32, settled + (total - settled) % 2^32

    local blocks, read = (count - 1 - (count - 1) % 8) / 8, {}
    -- Returns the stamp and the cumulative cost of a record.
    local function record(number)
      if number == count - 1 then return newest, total end
      local index = number % 8
      local block = (number - index) / 8
      read[block] = read[block] or ring.read_block(key, block, blocks, size, grown)
      local stamp, reached = unpack('<I6I4', read[block], 71 - index * 10)
      return newest - (newest - stamp) % 2^48, settled + (reached - settled) % 2^32
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
      stamps[number], records[number] = stamp, pack('<I6I4', stamp % 2^48, reached)
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
        ring.move_block(key, old % size, old % (size / 2))
      end
      if full == grown and size > 1 then size, grown = size / 2, 0 end
    end
    for block = first / 8, full - 1 do
      ring.write_block(key, block, full, size, grown, reversed(block * 8, block * 8 + 7))
    end
    -- The highest limit stays: what it admitted is still in the log. The TTL stays as well: the remaining records are
    -- no newer than the record that set the TTL, and a later charge sets it again. The copy has lost its records.
    local pending = reversed(full * 8, left - 2)
    call('SETRANGE', key, '40', pack('<I3I5I5I5I4I4I4ddI4I5', size, grown, 0, head, live, highest, settled, live_at,
      stamps[left - 1], total - cost, left) .. string.rep('-', 70 - #pending) .. pending)
  end

  local function refund_counter(key, cost, at, _, window)
    local value = call('GET', key)
    if not value then return end
    local start, previous, current, _, offset = unpack('<ddddd', value)
    at = at + offset
    -- With a client's clock that is behind, the older bucket weighs less, so the refund is too small.
    if at - at % window == start then
      if current >= cost then call('SETRANGE', key, '16', pack('<d', current - cost)) end
    elseif at - at % window == start - window then
      if previous >= cost then call('SETRANGE', key, '8', pack('<d', previous - cost)) end
    end
  end

  local function refund_window(key, cost, at, _, window)
    local value = call('GET', key)
    if not value then return end
    local start, count, _, offset = unpack('<dddd', value)
    at = at + offset
    if at - at % window == start and count >= cost then call('SETRANGE', key, '8', pack('<d', count - cost)) end
  end

  local function refund_bucket(key, cost, at, limit, window)
    local value = call('GET', key)
    if not value then return end
    local arrival, fraction, parts, _, last, offset = unpack('<dI4I4ddd', value)
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
    call('SETRANGE', key, '0', pack('<dI4', arrival, fraction))
  end

  local algorithms = {sliding_window_log, sliding_window_counter, fixed_window, token_bucket}
  refunds = {}
  for algorithm, undo in ipairs({refund_log, refund_counter, refund_window, refund_bucket}) do
    refunds[algorithm] = function(now, times, from, to, cost, mode, limit, window, parameter, at)
      for number = from, to do
        -- A value that is not a count, and a ban by hand, are errors before any charge of the check has changed.
        algorithms[algorithm](now, times, number, number, 0, 'evaluate', limit, window, parameter, false)
        if mode ~= 'evaluate' then
          undo(keys[number], cost, at, limit, window, parameter)
          keys[number], times[number] = 1, 0
        end
      end
      return true
    end
  end
end
