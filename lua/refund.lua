-- Refunds a check that was committed in one slot of a cluster and denied in another. The counts become what they would
-- be without the commit. A refund has the parameters of an algorithm, with the time of the commit as the last one.
--
-- No refund leads to more than the limit, because a refund removes exactly one commit. A commit that is no longer found
-- stays.
--
-- Commands: 1 (GET) and 1 (SETRANGE). The log: 1 (GETRANGE) and 1 (SETRANGE), 2 (GETRANGE, SETRANGE) for each block of
-- records that are newer than the commit, and 2 if the ring was growing; or 1 (UNLINK) if no other record is live.
--
-- The functions below are created only in calls that refund.

local refund

if ARGV[4] then
  -- The number of newest records that are searched, and rewritten if the commit is found. The busiest key writes this
  -- many in a few milliseconds.
  local depth = 256

  local function refund_log(key, cost, at, _, _, resolution)
    local packed = call('GETRANGE', key, '0', '99')
    if packed == '' then return end
    local newest, total, count, settled, live_at, live, head, size, grown, offset =
      unpack('<ddI5dddI5I4I5d', packed, 34)

    local blocks, read = (count - 1 - (count - 1) % 4) / 4, {}
    local function place(block)
      return 128 + block % ((block >= grown or block < blocks - size / 2) and size or size / 2) * 44
    end
    local function read_block(from)
      return call('GETRANGE', key, string.format('%d', from), string.format('%d', from + 43))
    end
    -- Returns the stamp and the cumulative cost of a record.
    local function record(number)
      if number == count - 1 then return newest, total end
      local block = (number - number % 4) / 4
      if block < blocks and not read[block] then read[block] = read_block(place(block)) end
      local stamp, reached = unpack('<I6I5', read[block] or packed, 1 + number % 4 * 11)
      return newest - (newest - stamp) % 2^48, total - (total - reached) % 2^40
    end

    local stamp = math.ceil((at + offset) / resolution) * resolution
    local index, found, reached, before, _ = count - 1, newest, total, settled, nil
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

    -- All records from `first` on are rewritten, because a record that becomes pending may be in a block now.
    local left = count - removed
    local pending = left - 1 - (left - 1) % 4
    local first = math.min(index, pending)
    local stamps, records = {}, {}
    for number = first, left - 1 do
      local stamp, reached = record(number < index and number or number + removed)
      if number >= index then reached = reached - cost end
      stamps[number], records[number] = stamp, pack('<I6I5', stamp % 2^48, reached % 2^40)
      if number == head and index == head then live_at, live = stamp, reached end
    end

    if pending < blocks * 4 then
      -- The last block is dissolved. When it was added, an old block was moved and the ring may have grown: both are
      -- undone.
      blocks = blocks - 1
      local old = blocks - size / 2
      if old < grown and old >= 0 and old % size >= size / 2 then
        local moved = read_block(128 + old % size * 44)
        call('SETRANGE', key, string.format('%d', 128 + old % (size / 2) * 44), moved)
      end
      if blocks == grown and size > 1 then size, grown = size / 2, 0 end
    end
    local number = first
    while number < pending do
      local last = math.min(number - number % 4 + 3, pending - 1)
      local from = place((number - number % 4) / 4) + number % 4 * 11
      call('SETRANGE', key, string.format('%d', from), table.concat(records, '', number, last))
      number = last + 1
    end
    -- The highest limit, behind these fields, stays: what it admitted is still in the log. The TTL stays as well: the
    -- remaining records are no newer than the record that set the TTL, and a later charge sets it again.
    local waiting = table.concat(records, '', pending, left - 2)
    call('SETRANGE', key, '0', pack('<c0c0ddI5dddI5I4I5d', waiting, string.rep('\0', 33 - #waiting), stamps[left - 1],
      total - cost, left, settled, live_at, live, head, size, grown, offset))
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

  refund = {}
  for algorithm, undo in ipairs({refund_log, refund_counter, refund_window, refund_bucket}) do
    refund[algorithm] = function(key, cost, allowed, _, limit, window, parameter, at)
      if allowed ~= 'evaluate' then undo(key, cost, at, limit, window, parameter) end
      return true, 0, -1, 0, 0
    end
  end
end
