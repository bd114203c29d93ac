-- What few calls need: the error of a value that is not a count, the time of a key of its own, the ring of a log with
-- its search, and the log in every case. `lua/sliding_window_log.lua` describes the layout of a log.
--
-- Returns the functions below. The first call of `rare` creates them.
local rare

rare = function()
  local call, pack, unpack = redis.call, struct.pack, struct.unpack
  local functions

  -- Returns functions for the values of keys that are banned by hand.
  --
  -- A ban makes the value of a key one that no algorithm accepts, so that a check that meets no ban does nothing for
  -- it. `MARK`, as a double, is not a number. In a log, it takes the place of the newest record's stamp, and the copy
  -- makes room for `MARK`, the end of the ban, the time until which the count is needed, the duration of the ban
  -- (doubles) and that stamp. Before any other count are `MARK` and those three. A key without a count gets an empty
  -- one, which is needed until 0. The TTL covers the ban and the count.
  --
  -- A ban that ends later than its duration from now was made before the clock was set back. It then lasts for its
  -- whole duration once more, and not for the time of the step.
  local function bans()
    local MARK, sub = '\0\0\0Ban\248\255', string.sub

    -- Returns the end of a ban, the time until which the count is needed, the value's first bytes, whether it is a log,
    -- and the duration of the ban; nothing if the key is not banned.
    local function read(key)
      local first = call('GETRANGE', key, '0', '94')
      if sub(first, 1, 8) ~= MARK or #first < 40 then return end
      local ends, needed, duration = unpack('<ddd', first, 9)
      local is_log = sub(first, 79, 86) == MARK
      -- What a ban has written can be lifted, and is then not banned.
      if not (ends >= 0 and ends < 2^53 and duration >= 0 and duration < 2^53) or ends % 1 > 0 or duration % 1 > 0
        or sub(first, 33, 40) == MARK or not (is_log or #first == 64 or #first == 72) then
        return
      end
      if ends > now + duration then
        ends = now + duration
        call('SETRANGE', key, '8', pack('<d', ends))
      end
      return ends, needed, first, is_log, duration
    end

    -- Ends a ban. Returns the end that it had, and its duration.
    local function lift(key)
      local ends, needed, first, is_log, duration = read(key)
      if not ends then return end
      if not (needed > now) then
        call('UNLINK', key)
      elseif is_log then
        call('SETRANGE', key, '78', sub(first, 33, 40))
      else
        call('UNLINK', key)
        call('SETRANGE', key, '0', sub(first, 33))
        expire(key, true, needed - now)
      end
      return ends, duration
    end

    -- Bans a key that is not banned, and has a count or no value.
    local function ban(key, ends, duration, algorithm, limit, window, parameter)
      local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, TOKEN_BUCKET = 1, 2, 4
      local value, span = nil, window
      if algorithm == SLIDING_WINDOW_LOG then
        value, span = call('GETRANGE', key, '0', '94'), window + math.ceil(window / 4) + 2 * parameter
      else
        value = call('GET', key) or ''
        if algorithm == SLIDING_WINDOW_COUNTER then span = 2 * window end
        if algorithm == TOKEN_BUCKET and value ~= '' then
          local arrival, _, _, _, _, offset = unpack('<dI4I4ddd', value)
          span = window + 1 + math.max(0, arrival - now - offset)
        end
      end
      local is_new, needed = value == '', now + span
      if is_new then
        needed = 0
        if algorithm == SLIDING_WINDOW_LOG then
          value = string.rep('\0', 62) .. '\1' .. string.rep('\0', 102)
        elseif algorithm == TOKEN_BUCKET then
          value = pack('<dI4I4ddd', 0, 0, limit, 0, 0, 0)
        else
          value = string.rep('\0', algorithm == SLIDING_WINDOW_COUNTER and 40 or 32)
        end
      end
      local head = MARK .. pack('<ddd', ends, needed, duration)
      if algorithm == SLIDING_WINDOW_LOG then
        -- No record is in the copy: the first one behind it is number 0.
        value = sub(value, 79, 86) .. sub(value, 41, 48) .. '\0\0\0\0\0' .. sub(value, 54, 78) .. MARK .. sub(value, 87)
      end
      call('SETRANGE', key, '0', head .. value)
      expire(key, is_new, math.max(ends, needed) - now)
    end

    -- Returns the count of a banned key: of a log, the bytes from 40 to 176, none if it is empty.
    local function count_of(key)
      local _, needed, first, is_log = read(key)
      if not is_log then return sub(first, 33) end
      if needed == 0 then return '' end
      local packed = call('GETRANGE', key, '40', '176')
      return sub(packed, 1, 38) .. sub(first, 33, 40) .. sub(packed, 47)
    end

    local bans_of_keys = {read = read, lift = lift, ban = ban, count_of = count_of}
    functions.bans = function() return bans_of_keys end
    return bans_of_keys
  end

  -- Handles a value that no algorithm accepts. If the key is banned by hand, raises the error that `lua/check.lua`
  -- handles; while that judges a check again, returns the count and records the end of the ban in `functions.met`.
  --
  -- Otherwise the value is of another program, from a wrong restore, or damaged. Each algorithm checks the length of a
  -- value and the ranges of its fields when it reads them, before it writes anything. So no field makes a loop long, or
  -- a number of the reply wrong. `src/store/redis/net/error.rs` has the same code. `is_count` is true for the count of
  -- a banned key, and for open holds.
  local function not_a_count(key, is_count)
    local banned = functions.bans()
    local ends = not is_count and banned.read(key)
    if ends and ends <= now then
      -- Lifted also while a check is judged again: another of its charges may be banned and cost nothing, and then this
      -- one is committed.
      banned.lift(key)
      error('AGAIN', 0)
    elseif ends and functions.met then
      functions.met[key] = ends
      return banned.count_of(key)
    elseif ends then
      error('BANNED', 0)
    end
    error('NOTACOUNT the value is not a count', 0)
  end

  -- Returns the time of a key, its offset from the server's time, and whether that offset has just changed.
  --
  -- If the server's clock is set back, the time of a key continues from where it was, at the rate of the server's
  -- clock, so that no key is frozen until the clock has caught up. `offset` is the lead of the key's time, kept with
  -- the key; `last` is a time that the key has reached. `is_holds` is true for the key of open holds. A changed offset
  -- is written also with a denial, or each denial would start from `last` again. The clocks of clients differ, so with
  -- a client's clock the time of a key stands still instead.
  local function own_time(key, now, offset, last, is_holds)
    if offset == 0 and last <= now then return now, 0, false end
    if not (offset >= 0 and now + offset < 2^53 and last < 2^53) or offset % 1 > 0 or last % 1 > 0 then
      not_a_count(key, is_holds)
    end
    if tonumber(ARGV[2]) then return now, 0, false end
    local time = now + offset
    if time >= last then return time, offset, false end
    return last, last - now, not functions.met
  end

  -- Returns the position of a block. A block that has not moved yet is in its old place.
  local function place(block, blocks, size, grown)
    return 180 + block % ((block >= grown or block < blocks - size / 2) and size or size / 2) * 80
  end

  -- Returns `length` bytes of a value. A value that ends before is not a count, unless `shorter` says that it may.
  local function read(key, from, length, shorter)
    local records = call('GETRANGE', key, string.format('%d', from), string.format('%d', from + length - 1))
    if #records < length and not shorter then not_a_count(key) end
    return records
  end

  local function write(key, from, records)
    call('SETRANGE', key, string.format('%d', from), records)
  end

  local function write_block(key, block, blocks, size, grown, records)
    write(key, place(block, blocks, size, grown), records)
  end

  -- Copies what is at one place of the ring to another. A value that is not a log may have less there. That is no
  -- error, because other charges of the check may be committed already.
  local function move_block(key, from, to)
    write(key, 180 + to * 80, read(key, 180 + from * 80, 80, true))
  end

  -- Returns block `block` of the `blocks` in the ring. After them follow the pending records, a block without its last
  -- record.
  local function read_block(key, block, blocks, size, grown)
    return read(key, block < blocks and place(block, blocks, size, grown) or 85, 80)
  end

  -- Returns the group of four records to which record `number` belongs, and the number of the first record behind the
  -- group, or behind the records that it has so far.
  local function read_group(key, packed, number, count)
    local size, grown = unpack('<I3I5', packed, 41)
    local index = number % 8
    local block, blocks = (number - index) / 8, math.floor((count - 1) / 8)
    local from = block < blocks and place(block, blocks, size, grown) or 85
    return read(key, index < 4 and from + 40 or from, 40), math.min(number - number % 4 + 4, count - 1)
  end

  -- Writes the block that the newest record completes. Returns the size of the ring, and the number of the block that
  -- gave it that size.
  --
  -- The ring is written before all else: if Redis refuses to let it grow, nothing has been charged.
  local function complete_block(key, size, grown, head, newest, total, count)
    local block = (count - 8) / 8
    local live_blocks = block - (head - head % 8) / 8
    if not (size >= 1 and live_blocks >= 0 and live_blocks <= size) then not_a_count(key) end
    -- A ring had half of its size when that was full. In a shorter value, a block would be written far behind the end,
    -- and Redis fills the space between. In a small ring that space is small.
    if size > 4096 and call('STRLEN', key) < 180 + size * 40 then not_a_count(key) end
    if live_blocks == size then size, grown = size * 2, block end
    -- Redis allocates twice the length whenever the value outgrows its allocation. With this byte before the first
    -- block it allocates 384, 896, 2 048, 5 120 and 12 288 bytes, into which rings of 2, 8, 16, 32 and 128 blocks just
    -- fit.
    if block == 0 then call('SETRANGE', key, '188', '\0') end
    -- One old block moves with each new one, in order. The ring can be full again only after `size / 2` new blocks, and
    -- by then all old blocks have moved.
    local old = block - size / 2
    if old < grown and old >= 0 and old % size >= size / 2 then
      move_block(key, old % (size / 2), old % size)
    end
    write(key, 180 + block % size * 80, pack('<I6I4', newest, total) .. call('GETRANGE', key, '95', '164'))
    return size, grown
  end

  -- Finds the first record from `low` to `high` that is later than `at` and has reached `target`; callers use one of
  -- the two conditions. The newest record `high` fulfils it. The search starts at `guess`. Returns the record's number,
  -- stamp and cumulative cost, and the cumulative cost `before` it.
  local function seek(key, newest, total, size, grown, low, high, guess, at, target, before)
    local found_at, found, step, base = newest, total, 1, before
    local blocks = (high - high % 8) / 8
    local block, records
    while low < high do
      local index = guess % 8
      local wanted = (guess - index) / 8
      if wanted ~= block then
        block = wanted
        records = read_block(key, block, blocks, size, grown)
      end
      local guess_at, reached = unpack('<I6I4', records, 71 - index * 10)
      guess_at, reached = newest - (newest - guess_at) % 2^48, base + (reached - base) % 2^32
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

  -- Reports everything, as `lua/check.lua` says "with 2".
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
    local packed = count_of_banned or call('GETRANGE', key, '40', '176')
    local size, grown, behind, head, live, highest = 1, 0, 0, 0, 0, 0
    local settled, live_at, newest, total, count, offset = 0, 0, 0, 0, 0, 0
    if packed == '' then
      if not count_of_banned and read(key, 0, 1, true) ~= '' then not_a_count(key) end
    else
      if #packed < 125 then not_a_count(key) end
      size, grown, behind, head, live, highest = unpack('<I3I5I5I5I4I4', packed)
      settled, live_at, newest, total, count = unpack('<I4ddI4I5', packed, 27)
      if highest == 0 then
        if #packed < 137 then not_a_count(key) end
        offset, highest = unpack('<dI4', packed, 126)
      end
      live, total = settled + (live - settled) % 2^32, settled + (total - settled) % 2^32
      -- Not NaN, and no more live records than the ring has places for.
      if not (newest < 2^53 and live_at <= newest) or size < 1 or head >= count or count - head > size * 8 + 8 then
        return judge(now, times, number, cost, allowed, limit, window, resolution, count_rejected,
          not_a_count(key, count_of_banned))
      end
      -- As in `complete_block`, but before the other charges of the check are committed.
      if size > 4096 and allowed == 'evaluate' and call('STRLEN', key) < 180 + size * 40 then not_a_count(key) end
    end

    -- The time of a key does not run backwards. Stamps are rounded up by less than one resolution.
    local time, stepped
    time, offset, stepped = own_time(key, now, offset, newest - resolution + 1)
    local at = newest - resolution < time and time or newest - resolution + 1
    local horizon = at - window
    if newest <= horizon then
      -- All records have left, so the cumulative cost starts at 0 again.
      newest, total, settled, live, head = 0, 0, 0, 0, count
    elseif live_at <= horizon then
      head, live_at, live, settled =
        seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, horizon, 0, live)
      if settled > total then not_a_count(key) end
    end
    local spent = total - settled
    local fits = cost == 0 or spent + cost <= limit
    if allowed == 'evaluate' then return fits end
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
        if packed == '' then record = string.rep('-', 70) end
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
            record = string.rep('-', 70 - count % 8 * 10) .. pack('<I6I4', newest, total)
          end
          newest, total, count = stamp, total + cost, count + 1
        end
      end
      local visible = highest
      if offset ~= 0 then
        call('SETRANGE', key, '165', pack('<dI4', offset, highest))
        visible = 0
      end
      call('SETRANGE', key, '40', pack('<I3I5I5I5I4I4I4ddI4I5', size, grown, behind, head, live, visible, settled,
        live_at, newest, total, count) .. record)
      if spent > highest and count_rejected and live <= total - highest then
        head, live_at, live, settled =
          seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, 0, total - highest + 1, live)
      end
      -- Less than 2^32 may be live. More would affect no decision, because no limit is higher, so the excess settles.
      local most = total - 2^32 + 1
      if settled < most and live <= most and head < count - 1 then
        head, live_at, live = seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, -1, most + 1, live)
      end
      settled = math.min(total, math.max(settled, most))
      if total - settled < spent then
        spent = total - settled
        call('SETRANGE', key, '53', pack('<I5I4I4I4d', head, live, visible, settled, live_at))
      end
      if refresh then expire(key, packed == '', window + quarter + resolution) end
    elseif stepped then
      call('SETRANGE', key, '165', pack('<dI4', offset, highest))
      call('SETRANGE', key, '62', pack('<I4', 0))
    end

    if spent == 0 then
      report(times, number, limit, fits, -1, 0, 0)
      return
    end
    -- In most cases the oldest live record is the next to leave.
    local available = spent < limit and limit - spent or 0
    local retry, next_unit = -1, live_at + window - time
    if not fits and cost <= limit then
      local target = total + cost - limit
      retry = next_unit
      if target > live then
        local guess = head + math.floor((target - live) / (total - live) * (count - 1 - head))
        local _, leaves =
          seek(key, newest, total, size, grown, head, count - 1, math.min(guess, count - 2), -1, target, settled)
        retry = leaves + window - time
      end
    end
    local target = total + available + 1 - limit
    if target <= settled then
      next_unit = 0
    elseif target > live and spent > limit then
      local _, leaves = seek(key, newest, total, size, grown, head, count - 1, head, -1, target, settled)
      next_unit = leaves + window - time
    end
    report(times, number, available, fits, retry, next_unit, newest + window - time)
  end

  functions = {
    not_a_count = not_a_count, bans = bans, own_time = own_time, write_block = write_block, move_block = move_block,
    read_block = read_block, read_group = read_group, complete_block = complete_block, seek = seek, judge = judge,
  }
  rare = function() return functions end
  return functions
end
