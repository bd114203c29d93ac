-- The ring of a log with its search, and the log in every case. `lua/sliding_window_log.lua` describes the layout of a
-- log.
--
-- Returns the functions below. The first call of `ring` creates them.
local ring

if used % 2 >= 1 then ring = function()
  local shared = rare()
  if shared.ring then return shared.ring end
  local call, pack, unpack = redis.call, struct.pack, struct.unpack
  local not_a_count, own_time = shared.not_a_count, shared.own_time

  -- Returns the position of a block. A block that has not moved yet is in its old place.
  local function place(block, blocks, size, grown)
    return 198 + block % ((block >= grown or block < blocks - size / 2) and size or size / 2) * 88
  end

  -- Returns `length` bytes of a value. A value that ends before is not a count, unless `shorter` says that it may: that
  -- is no error once other charges of the check, or this one, may be committed.
  local function read(key, from, length, shorter)
    local records = call('GETRANGE', key, string.format('%d', from), string.format('%d', from + length - 1))
    if #records < length and not shorter then not_a_count() end
    return records
  end

  local function write(key, from, records)
    call('SETRANGE', key, string.format('%d', from), records)
  end

  -- Copies what is at one place of the ring to another.
  local function move_block(key, from, to)
    write(key, 198 + to * 88, read(key, 198 + from * 88, 88, true))
  end

  -- Returns block `block` of the `blocks` in the ring. After them follow the pending records, a block without its last
  -- record. `shorter` as in `read`.
  local function read_block(key, block, blocks, size, grown, shorter)
    return read(key, block < blocks and place(block, blocks, size, grown) or 96, 88, shorter)
  end

  -- Returns the group of four records to which record `number` belongs, and the number of the first record behind the
  -- group, or behind the records that it has so far.
  local function read_group(key, packed, number, count)
    local size, grown = unpack('<I3I5', packed, 45)
    local index = number % 8
    local block, blocks = (number - index) / 8, math.floor((count - 1) / 8)
    local from = block < blocks and place(block, blocks, size, grown) or 96
    return read(key, index < 4 and from + 44 or from, 44), math.min(number - number % 4 + 4, count - 1)
  end

  -- Writes the block that the newest record completes. Returns the size of the ring, and the number of the block that
  -- gave it that size.
  --
  -- The ring is written before all else: if Redis refuses to let it grow, nothing has been charged. Without `newest`,
  -- this only raises the error of a value that cannot have the block.
  local function complete_block(key, size, grown, head, newest, total, count)
    local block = (count - 8) / 8
    local live_blocks = block - (head - head % 8) / 8
    if not (size >= 1 and live_blocks >= 0 and live_blocks <= size) then not_a_count() end
    if live_blocks == size then size, grown = size * 2, block end
    -- A ring had half of its size when that was full. In a shorter value, a block would be written far behind the end,
    -- and Redis fills the space between. In a small ring that space is small.
    if size > 4096 then read(key, 197 + size * 44, 1) end
    if not newest then return end
    -- Redis allocates twice the length whenever the value outgrows its allocation. With this byte before the first
    -- block it allocates 448, 1 024, 2 560, 6 144 and 14 336 bytes, into which rings of 2, 8, 16, 64 and 128 blocks
    -- fit.
    if block == 0 then call('SETRANGE', key, '198', '\0') end
    -- One old block moves with each new one, in order. The ring can be full again only after `size / 2` new blocks, and
    -- by then all old blocks have moved.
    local old = block - size / 2
    if old < grown and old >= 0 and old % size >= size / 2 then
      move_block(key, old % (size / 2), old % size)
    end
    write(key, 198 + block % size * 88, pack('<I6I5', newest, total) .. call('GETRANGE', key, '107', '183'))
    return size, grown
  end

  -- Prepares a ring of `blocks` blocks for losing all from number `full` on: what was done when they were added is
  -- undone. Each had moved one old block while the ring grew; they move back together, because their places follow each
  -- other. Returns the size of the ring, and the number of the block that gave it that size.
  local function shrink(key, full, blocks, size, grown, head)
    local half = size / 2
    -- The old blocks that have moved, are live, and were in another place before.
    local first, behind = math.max(full - half, (head - head % 8) / 8, 0), math.min(blocks - half, grown)
    local start = first % size
    if start < half then first = first + half - start end
    behind = math.min(behind, first - first % size + size)
    if size > 1 and first < behind then
      local length = (behind - first) * 88
      local moved = read(key, 198 + first % size * 88, length, true)
      write(key, 198 + first % half * 88, moved)
    end
    if grown > 0 and full <= grown then return half, 0 end
    return size, grown
  end

  -- Finds the first record from `low` to `high` that is later than `at` and has reached `target`; callers use one of
  -- the two conditions. The newest record `high` fulfils it. The search starts at `guess`. Returns the record's number,
  -- stamp and cumulative cost, and the cumulative cost `before` it. At first that is the cumulative cost before `low`.
  --
  -- `shorter` says that a value without the wanted records is no error. The search then ends at the earliest record
  -- that it knows to fulfil the condition, as if the costs before it were those of that record: they leave later.
  local function seek(key, newest, total, size, grown, low, high, guess, at, target, before, shorter)
    local found_at, found, step, base = newest, total, 1, before + 1
    local blocks = (high - high % 8) / 8
    local block, records
    while low < high do
      local index = guess % 8
      local wanted = (guess - index) / 8
      if wanted ~= block then
        block = wanted
        records = read_block(key, block, blocks, size, grown, shorter)
        if #records < 88 then break end
      end
      local guess_at, reached = unpack('<I6I5', records, 78 - index * 11)
      guess_at, reached = newest - (newest - guess_at) % 2^48, base + (reached - base) % 2^40
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
    return high, found_at, found, before
  end

  -- Reports everything, with plus 2, see `lua/FORMAT.md`.
  local function report(times, number, available, fits, retry, next_unit, reset)
    KEYS[number], times[number] = available * 4 + 2 + (fits and 1 or 0), next_unit
    if not fits then times[#times + 1] = retry end
    times[#times + 1] = reset
  end

  -- The log in every case. `lua/sliding_window_log.lua` handles what is usual.
  --
  -- A record settles when it no longer counts. This is when it leaves the window. With `count_rejected`, a record
  -- settles also when the newer records alone reach the highest limit: a policy with that limit may share the log, and
  -- still counts what it has admitted. Settling is written only with a charge.
  --
  -- Commands: as `lua/sliding_window_log.lua` says, and: a few more (GETRANGE) when the oldest records have left; 1
  -- (SETRANGE) when a counted rejection settles records. A denial of a larger cost searches the log for its
  -- Retry-After, and a charge beyond the limit (a counted rejection, or a lowered limit) for the next unit.
  local function judge(now, times, number, cost, allowed, limit, window, resolution, count_rejected, count_of_banned)
    local keys = KEYS
    local key = keys[number]
    local packed = count_of_banned or call('GETRANGE', key, '44', '197')
    local size, grown, behind, head, live, highest = 1, 0, 0, 0, 0, 0
    local settled, live_at, newest, total, count, offset = 0, 0, 0, 0, 0, 0
    if packed == '' then
      if not count_of_banned and read(key, 0, 1, true) ~= '' then not_a_count() end
    else
      if #packed < 140 then not_a_count() end
      size, grown, behind, head, live, highest = unpack('<I3I5I5I5I6I6', packed)
      settled, live_at, newest, total, count = unpack('<I6ddI6I5', packed, 31)
      if highest == 0 then
        if #packed < 154 then not_a_count() end
        offset, highest = unpack('<dI6', packed, 141)
      end
      live, total = settled + (live - settled) % 2^48, settled + (total - settled) % 2^48
      -- Not NaN, and no more live records than the ring has places for.
      if not (newest < 2^53 and live_at <= newest) or size < 1 or head >= count or count - head > size * 8 + 8 then
        if count_of_banned then not_a_count() end
        return judge(now, times, number, cost, allowed, limit, window, resolution, count_rejected,
          shared.bans().behind(key))
      end
    end

    -- The time of a key does not run backwards. Stamps are rounded up by less than one resolution.
    local time, stepped
    time, offset, stepped = own_time(now, offset, newest - resolution + 1, key)
    local at = newest - resolution < time and time or newest - resolution + 1
    local horizon = at - window
    if newest <= horizon then
      -- All records have left, so the cumulative cost starts at 0 again.
      newest, total, settled, live, head = 0, 0, 0, 0, count
    elseif live_at <= horizon then
      -- Once the charge is evaluated, others of its check may be committed.
      local is_evaluated = allowed ~= nil and allowed ~= 'evaluate'
      head, live_at, live, settled =
        seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, horizon, 0, live, is_evaluated)
      if settled > total then not_a_count() end
    end
    local spent = total - settled
    local fits = cost == 0 or spent + cost <= limit
    if allowed == 'evaluate' then
      -- The error of a value that is too short for one more block, before other charges of the check are committed.
      if size > 2048 and count % 8 == 0 and head < count then complete_block(key, size, grown, head, nil, nil, count) end
      return fits
    end
    if allowed == nil then allowed = fits end

    if cost > 0 and (allowed or (count_rejected and cost <= limit)) then
      local stamp = resolution == 1 and at or math.max(newest, math.ceil(at / resolution) * resolution)
      -- The first charge in each quarter of a window sets the TTL to a window and a quarter. A later record is less
      -- than a quarter newer than this charge, so all records have left the window when the key expires. A clock that
      -- is set back only prolongs the key, because its time continues. With clients' clocks `expire` adds a minute for
      -- clocks that are behind.
      local quarter = math.max(1, math.floor(window / 4))
      local refresh = head == count or newest < stamp - stamp % quarter
      spent = spent + cost
      -- A counted rejection may itself leave no room for the same cost.
      fits = fits and (allowed or spent + cost <= limit)
      local record = ''
      if head == count then
        -- Frees a large ring.
        if size > 8 then
          call('UNLINK', key)
          packed = ''
        end
        if packed == '' then record = string.rep('-', 77) end
        size, grown, behind, head, live, highest, live_at, newest, total, count =
          1, 0, 0, 0, cost, limit, stamp, stamp, cost, 1
      else
        highest = math.max(highest, limit)
        if newest == stamp then
          -- The same instant: one record with the larger cost.
          total = total + cost
          if head == count - 1 then live = total end
        else
          -- The record that was the newest becomes pending, or completes a block.
          if count % 8 == 0 then
            size, grown = complete_block(key, size, grown, head, newest, total, count)
          else
            record = string.rep('-', 77 - count % 8 * 11) .. pack('<I6I5', newest, total)
          end
          newest, total, count = stamp, total + cost, count + 1
        end
      end
      local visible = highest
      if offset ~= 0 then
        call('SETRANGE', key, '184', pack('<dI6', offset, highest))
        visible = 0
      end
      call('SETRANGE', key, '44', pack('<I3I5I5I5I6I6I6ddI6I5', size, grown, behind, head, live, visible, settled,
        live_at, newest, total, count) .. record)
      if spent > highest and count_rejected and live <= total - highest then
        head, live_at, live, settled =
          seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, 0, total - highest + 1, live, true)
      end
      -- At most 2^40 may be live. More would affect no decision, because no limit is higher, so the excess settles.
      local most = total - 2^40
      if settled < most and live <= most and head < count - 1 then
        head, live_at, live =
          seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, -1, most + 1, live, true)
      end
      settled = math.min(total, math.max(settled, most))
      if total - settled < spent then
        spent = total - settled
        call('SETRANGE', key, '57', pack('<I5I6I6I6d', head, live, visible, settled, live_at))
      end
      if refresh then expire(key, packed == '', window + quarter + resolution) end
    elseif stepped then
      call('SETRANGE', key, '184', pack('<dI6', offset, highest))
      call('SETRANGE', key, '68', pack('<I6', 0))
    end

    if spent == 0 then
      report(times, number, limit, fits, -1, 0, 0)
      return
    end
    -- In most cases the oldest live record is the next to leave. In a damaged value, records may be in any order.
    local available = spent < limit and limit - spent or 0
    local retry, next_unit = -1, math.max(0, live_at + window - time)
    if not fits and cost <= limit then
      local target = total + cost - limit
      retry = next_unit
      if target > live then
        local guess = head + math.floor((target - live) / (total - live) * (count - 1 - head))
        local _, leaves =
          seek(key, newest, total, size, grown, head, count - 1, math.min(guess, count - 2), -1, target, settled, true)
        retry = math.max(next_unit, leaves + window - time)
      end
    end
    local target = total + available + 1 - limit
    if target <= settled then
      next_unit = 0
    elseif target > live and spent > limit then
      local _, leaves = seek(key, newest, total, size, grown, head, count - 1, head, -1, target, settled, true)
      next_unit = math.max(next_unit, leaves + window - time)
    end
    report(times, number, available, fits, retry, next_unit, newest + window - time)
  end

  shared.ring = {
    place = place, write = write, move_block = move_block, read_block = read_block, read_group = read_group,
    complete_block = complete_block, seek = seek, judge = judge, shrink = shrink,
  }
  return shared.ring
end end
