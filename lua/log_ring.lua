-- The ring of a log, and its search. `lua/sliding_window_log.lua` describes the layout.
--
-- The functions are created when a call needs one of them.

-- A place that holds no record yet may hold any bytes.
local UNUSED = '----------------------------------------------------------------------'

local ring

local function load_ring()
  local call, pack, unpack = redis.call, struct.pack, struct.unpack
  ring = {}

  -- Returns the position of a block. A block that has not moved yet is in its old place.
  local function place(block, blocks, size, grown)
    return 180 + block % ((block >= grown or block < blocks - size / 2) and size or size / 2) * 80
  end

  local function read(key, from, length)
    return call('GETRANGE', key, string.format('%d', from), string.format('%d', from + length - 1))
  end

  local function write(key, from, records)
    call('SETRANGE', key, string.format('%d', from), records)
  end

  function ring.write_block(key, block, blocks, size, grown, records)
    write(key, place(block, blocks, size, grown), records)
  end

  -- Copies what is at one place of the ring to another.
  function ring.move_block(key, from, to)
    write(key, 180 + to * 80, read(key, 180 + from * 80, 80))
  end

  -- Returns block `block` of the `blocks` in the ring. After them follow the pending records, a block without its last
  -- record.
  function ring.read_block(key, block, blocks, size, grown)
    return read(key, block < blocks and place(block, blocks, size, grown) or 85, 80)
  end

  -- Returns the group of four records to which record `number` belongs, and the number of the first record behind the
  -- group, or behind the records that it has so far.
  function ring.read_group(key, packed, number, count)
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
  function ring.complete_block(key, size, grown, head, newest, total, count)
    local block = (count - 8) / 8
    if block - (head - head % 8) / 8 >= size then size, grown = size * 2, block end
    -- Redis allocates twice the length whenever the value outgrows its allocation. With this byte before the first
    -- block it allocates 384, 896, 2 048, 5 120 and 12 288 bytes, into which rings of 2, 8, 16, 32 and 128 blocks just
    -- fit.
    if block == 0 then call('SETRANGE', key, '188', '\0') end
    -- One old block moves with each new one, in order. The ring can be full again only after `size / 2` new blocks, and
    -- by then all old blocks have moved.
    local old = block - size / 2
    if old < grown and old >= 0 and old % size >= size / 2 then
      ring.move_block(key, old % (size / 2), old % size)
    end
    write(key, 180 + block % size * 80, pack('<I6I4', newest, total) .. call('GETRANGE', key, '95', '164'))
    return size, grown
  end

  -- Finds the first record from `low` to `high` that is later than `at` and has reached `target`; callers use one of
  -- the two conditions. The newest record `high` fulfils it. The search starts at `guess`. Returns the record's number,
  -- stamp and cumulative cost, and the cumulative cost `before` it.
  function ring.seek(key, newest, total, size, grown, low, high, guess, at, target, before)
    local found_at, found, step, base = newest, total, 1, before
    local blocks = (high - high % 8) / 8
    local block, records
    while low < high do
      local index = guess % 8
      local wanted = (guess - index) / 8
      if wanted ~= block then
        block = wanted
        records = ring.read_block(key, block, blocks, size, grown)
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
end
