-- The log in every case. `lua/sliding_window_log.lua` describes the layout, and handles what is usual.
--
-- A record settles when it no longer counts. This is when it leaves the window. With `count_rejected`, a record settles
-- also when the newer records alone reach the highest limit: a policy with that limit may share the log, and still
-- counts what it has admitted. Settling is written only with a charge.
--
-- Commands: as `lua/sliding_window_log.lua` says, and: a few more (GETRANGE) when the oldest records have left; 1
-- (SETRANGE) when a counted rejection settles records. A denial of a larger cost searches the log for its Retry-After,
-- and a charge beyond the limit (a counted rejection, or a lowered limit) for the next unit.

local judge_log

-- The function is created when a call needs it.
local function load_judge()
  if not ring then load_ring() end
  local call, pack, unpack, seek = redis.call, struct.pack, struct.unpack, ring.seek

  judge_log = function(number, cost, allowed, limit, window, resolution, count_rejected)
    local key = keys[number]
    local packed = call('GETRANGE', key, '40', '176')
    local size, grown, behind, head, live, highest = 1, 0, 0, 0, 0, 0
    local settled, live_at, newest, total, count, offset = 0, 0, 0, 0, 0, 0
    if packed ~= '' then
      size, grown, behind, head, live, highest = unpack('<I3I5I5I5I4I4', packed)
      settled, live_at, newest, total, count = unpack('<I4ddI4I5', packed, 27)
      if highest == 0 then offset, highest = unpack('<dI4', packed, 126) end
      live, total = settled + (live - settled) % 2^32, settled + (total - settled) % 2^32
      -- Text or NaN: a time that the client cannot read would fail the other checks of the call too.
      if not (newest < 2^53 and live_at <= newest) then error('the value is not a log') end
    end

    -- The time of a key does not run backwards. Stamps are rounded up by less than one resolution.
    local time, stepped
    time, offset, stepped = own_time(offset, newest - resolution + 1)
    local at = newest - resolution < time and time or newest - resolution + 1
    local horizon = at - window
    if newest <= horizon then
      -- All records have left, so the cumulative cost starts at 0 again.
      newest, total, settled, live, head = 0, 0, 0, 0, count
    elseif live_at <= horizon then
      head, live_at, live, settled =
        seek(key, newest, total, size, grown, head + 1, count - 1, head + 1, horizon, 0, live)
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
        if packed == '' then record = UNUSED end
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
            size, grown = ring.complete_block(key, size, grown, head, newest, total, count)
          else
            record = string.sub(UNUSED, count % 8 * 10 + 1) .. pack('<I6I4', newest, total)
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
      -- Less than 2^32 may be live. More would affect no decision, because no limit is higher, so the excess, a part of
      -- the oldest record, settles.
      settled = math.max(settled, total - 2^32 + 1)
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
      keys[number], times[number] = limit * 4 + 2 + (fits and 1 or 0), 0
      add(-1)
      add(0)
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
    elseif target > live then
      local _, leaves = seek(key, newest, total, size, grown, head, count - 1, head, -1, target, settled)
      next_unit = leaves + window - time
    end
    keys[number], times[number] = available * 4 + 2 + (fits and 1 or 0), next_unit
    add(retry)
    add(newest + window - time)
  end
end
