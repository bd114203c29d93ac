-- Sliding window log: the step function F(t) = cost admitted up to t, with one record per request whatever its cost.
--
-- Let C be the newest cumulative cost. C - F(now - window) is spent in (now - window, now], so a cost fits if and only
-- if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target has to leave: its
-- stamp gives the exact Retry-After.
--
-- Most checks take one read (GETRANGE) and, when they are charged, one write (SETRANGE): all fields that a charge
-- changes are next to each other, before the place of the next record. The value is a string:
--
--     0 to 43   the copy: up to 4 records that leave next, those of the oldest live record's group of four by number;
--    44 to 56   size of the ring in blocks (u24); number of the block that gave it that size (u40); number of the first
--               record behind the copy (u40): written when the copy or the ring changes;
--    57 to 87   number of the oldest live record (u40); its cumulative cost (u48); the highest limit that has charged
--               since the log was last empty (u48); the settled cumulative cost, which is F(now - window) (u48); the
--               oldest live record's stamp (double): written when records leave;
--    88 to 106  stamp of the newest record (double); its cumulative cost (u48); number of records (u40): written with
--               each charge;
--   107 to 183  up to 7 pending records, older than the newest and not yet in a block;
--   184 to 197  only while the highest limit above is 0, because the key has a time of its own: the offset of that time
--               (double); the highest limit (u48);
--   198 on      the ring of blocks of 8 records.
-- Records are 11 bytes: 48 bits of time and 40 of cumulative cost, enough to derive the time from the newest record and
-- the cost from the settled one: at most 2^40 is live (see `lua/ring.lua`), so a live record is 1 to 2^40 further. They
-- are in reverse order: the first pending record is the farthest, so nothing is between the fields of a charge and the
-- place of its record.
--
-- The ring doubles when live records fill it. The place of a block is its number modulo the size, so half of the blocks
-- have to move: one old block with each new one, and a new block never overwrites one that has not moved. No operation
-- walks the log: a search gallops from a guess and then halves. A ring keeps its size until all records have left; then
-- a large ring is freed (UNLINK).
--
-- Commands: evaluate 1 (GETRANGE), and 1 (GETRANGE) with every fourth record that leaves, and once in a long run;
-- commit 1 (SETRANGE) when charged, 2 (GETRANGE, SETRANGE) with every eighth charge, 2 more of these and once 1
-- (GETRANGE) while the ring grows, and 1 (PEXPIRE) in each quarter of a window.

local sliding_window_log

if used % 2 >= 1 then
  -- Charges `cost` to the keys of the charges `from` to `to`, each a check of its own (`mode` is nil), or handles one
  -- charge of a larger check.
  --
  -- The loop handles what is usual: a new key, and a live log that has seen no step of the clock. A `break` out of
  -- `repeat` leaves any other key to `ring().judge`, which handles everything.
  sliding_window_log = function(now, times, from, to, cost, mode, limit, window, resolution, count_rejected, step)
    if mode ~= nil or cost == 0 or cost > limit then
      local judge, fits = ring().judge, nil
      for number = from, to, step or 1 do
        fits = judge(now, times, number, cost, mode, limit, window, resolution, count_rejected)
      end
      return fits
    end
    local call, pack, unpack, keys = redis.call, struct.pack, struct.unpack, KEYS
    local horizon, room, stamp = now - window, limit - cost, now
    if resolution > 1 then stamp = math.ceil(now / resolution) * resolution end
    local epoch, quarter = stamp - stamp % 2^48, window < 4 and 1 or (window - window % 4) / 4
    local quarter_start = stamp - stamp % quarter
    -- A place that holds no record yet may hold any bytes.
    local UNUSED = '-----------------------------------------------------------------------------'
    -- Each byte read costs, so a long run reads the copy only from the first key on that is new, or whose records have
    -- left. `skipped` is the number of bytes before `packed`, and `length` that of its own.
    local skipped, start, length = 0, '0', 107
    if to - from >= 8 then skipped, start, length = 44, '44', 63 end
    for number = from, to, step or 1 do
      local key = keys[number]
      local packed = call('GETRANGE', key, start, '106')
      local usual = false
      repeat
        if packed == '' then
          -- A shorter value is not a log. Other keys of the run may be new too, and are then not read twice.
          if skipped > 0 then
            skipped, start, length = 0, '0', 107
            if call('GETRANGE', key, '0', '0') ~= '' then break end
          end
          call('SETRANGE', key, '44',
            pack('<I3I5I5I5I6I6I6ddI6I5c77', 1, 0, 0, 0, cost, limit, 0, stamp, stamp, cost, 1, UNUSED))
          expire(key, true, window + quarter + resolution)
          keys[number], times[number], usual = room * 4 + 1, stamp - horizon, true
          break
        end

        if #packed ~= length then break end
        local highest, settled, live_at, newest, total, count = unpack('<I6I6ddI6I5', packed, length - 38)
        -- NaN, from a value that is not a log, ends here too.
        if not (newest > horizon and newest <= stamp and live_at <= newest) or highest < limit then break end

        -- The records that have left the window settle. No loop goes on behind the copy's group of four, also if a
        -- value that is not a log says otherwise.
        local head, live, behind, copy, ring_fields
        if live_at <= horizon then
          if skipped > 0 then
            packed = call('GETRANGE', key, '0', '43') .. packed
            skipped, start, length = 0, '0', 107
          end
          behind, head, live = unpack('<I5I5I6', packed, 53)
          local groups = 0
          repeat
            settled, head = live, head + 1
            if head == count - 1 then
              live_at, live = newest, total
            else
              local place = head % 4
              if place == 0 or head >= behind then
                -- After a pause many records have left, and the judge searches.
                if groups == 2 then break end
                groups = groups + 1
                copy, behind = ring().read_group(key, packed, head, count)
              end
              live_at, live = unpack('<I6I5', copy or packed, 34 - place * 11)
              live_at, live = live_at + epoch, settled + 1 + (live - settled - 1) % 2^40
              if live_at > stamp then live_at = live_at - 2^48 end
            end
          until live_at > horizon
          if live_at <= horizon then break end
        end

        local left, next_unit = room - (total - settled) % 2^48, live_at - horizon
        if left < 0 then
          -- Denied. A higher limit may have charged more than this limit, and then another unit needs a search.
          if count_rejected or left + cost < 0 then break end
          local retry = next_unit
          if left < -1 then
            if skipped > 0 then
              packed = call('GETRANGE', key, '0', '43') .. packed
              skipped, start, length = 0, '0', 107
            end
            -- The first record by which enough has left.
            if not head then behind, head, live = unpack('<I5I5I6', packed, 53 - skipped) end
            local leaving = (live - settled) % 2^48
            while leaving < -left do
              head = head + 1
              local place = head % 4
              if place == 0 or head >= behind then break end
              retry, live = unpack('<I6I5', copy or packed, 34 - place * 11)
              leaving = 1 + (live - settled - 1) % 2^40
              retry = retry + epoch - horizon
              if retry > stamp - horizon then retry = retry - 2^48 end
            end
            if leaving < -left or retry < next_unit then break end
          end
          times[number], usual = next_unit, true
          if left + cost == 0 and retry == next_unit and newest % 1 == 0 then
            keys[number] = (newest - horizon) * 4
          else
            keys[number] = (left + cost) * 4 + 2
            times[#times + 1] = retry
            times[#times + 1] = newest - horizon
          end
          break
        end

        if newest == stamp then
          -- The same instant: one record with the larger cost.
          if live_at == newest then break end
          if head then
            call('SETRANGE', key, '57',
              pack('<I5I6I6I6ddI6', head, live, highest, settled, live_at, newest, total + cost))
          else
            call('SETRANGE', key, '96', pack('<I6', total + cost))
          end
        else
          local index = count % 8
          if index == 0 then
            -- The pending records and the newest one are a whole block.
            if not head then behind, head, live = unpack('<I5I5I6', packed, 53 - skipped) end
            local size, grown = unpack('<I3I5', packed, 45 - skipped)
            local new_size, new_grown = ring().complete_block(key, size, grown, head, newest, total, count)
            if new_size > size then
              ring_fields = pack('<I3I5', new_size, new_grown)
              copy = copy or skipped > 0 and call('GETRANGE', key, '0', '43') or packed
            end
          end
          -- The fields of a charge, unused places, and the record that was the newest.
          local fields, unused = nil, UNUSED
          if index < 4 then
            if index < 2 then
              fields = index == 0 and '<dI6I5' or '<dI6I5c66I6I5'
            else
              fields = index == 2 and '<dI6I5c55I6I5' or '<dI6I5c44I6I5'
            end
          elseif index < 6 then
            fields = index == 4 and '<dI6I5c33I6I5' or '<dI6I5c22I6I5'
          elseif index == 6 then
            fields = '<dI6I5c11I6I5'
          else
            fields, unused = '<dI6I5c0I6I5', ''
          end
          total, count = total + cost, count + 1
          if not head then
            call('SETRANGE', key, '88', pack(fields, stamp, total, count, unused, newest, total - cost))
          elseif copy then
            ring_fields = ring_fields or string.sub(packed, 45, 52)
            call('SETRANGE', key, '0', pack('<c44c8I5I5I6I6I6d' .. fields, copy, ring_fields, behind, head, live,
              highest, settled, live_at, stamp, total, count, unused, newest, total - cost))
          else
            call('SETRANGE', key, '57', pack('<I5I6I6I6d' .. fields, head, live, highest, settled, live_at, stamp,
              total, count, unused, newest, total - cost))
          end
        end
        if newest < quarter_start then expire(key, false, window + quarter + resolution) end
        keys[number], times[number], usual = left * 4 + 1, next_unit, true
      until true
      if not usual then
        ring().judge(now, times, number, cost, mode, limit, window, resolution, count_rejected)
      end
    end
  end
end
