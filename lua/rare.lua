-- What few calls need: the error of a value that is not a count, bans that are beside a count, and the time of a key of
-- its own.
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

    -- The lengths of the counts, by algorithm; a log has none. Each function below takes the length of its key's count,
    -- so that a ban that was cut is not read as that of another count.
    local LENGTHS = {false, 40, 32, 44}

    -- Returns the end of a ban, the time until which the count is needed, the value's first bytes, and the duration of
    -- the ban; nothing if the key is not banned, or if the value is not a whole ban of such a count.
    local function read(key, length)
      local first = call('GETRANGE', key, '0', '106')
      if sub(first, 1, 8) ~= MARK or #first ~= (length and length + 32 or 107) then return end
      local ends, needed, duration = unpack('<ddd', first, 9)
      -- What a ban has written can be lifted, and is then not banned.
      if not (ends >= 0 and ends < 2^53 and duration >= 0 and duration < 2^53 and needed >= 0 and needed < 2^54)
        or ends % 1 > 0 or duration % 1 > 0
        or sub(first, 33, 40) == MARK or not (length or sub(first, 89, 96) == MARK) then
        return
      end
      if ends > now + duration then
        -- A count that is not needed after the ban stays one.
        if needed == ends then needed = now + duration end
        ends = now + duration
        call('SETRANGE', key, '8', pack('<dd', ends, needed))
      end
      return ends, needed, first, duration
    end

    -- Ends a ban. Returns the end that it had, and its duration.
    local function lift(key, length)
      local ends, needed, first, duration = read(key, length)
      if not ends then return end
      if not (needed > now) then
        call('UNLINK', key)
      elseif not length then
        call('SETRANGE', key, '88', sub(first, 33, 40))
      else
        call('UNLINK', key)
        call('SETRANGE', key, '0', sub(first, 33))
        expire(key, true, needed - now)
      end
      return ends, duration
    end

    -- Bans a key that is not banned, and has a count or no value. `ends_count`: the count is not needed after the ban.
    local function ban(key, ends, duration, algorithm, limit, window, parameter, ends_count)
      local SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, TOKEN_BUCKET = 1, 2, 4
      local value, span = nil, window
      if algorithm == SLIDING_WINDOW_LOG then
        value, span = call('GETRANGE', key, '0', '106'), window + math.ceil(window / 4) + 2 * parameter
      else
        value = call('GETRANGE', key, '0', '43')
        if algorithm == SLIDING_WINDOW_COUNTER then span = 2 * window end
        if algorithm == TOKEN_BUCKET and value ~= '' then
          local arrival, _, _, _, _, offset = unpack('<dI6I6ddd', value)
          -- Also of a value that is not a count: a ban that was lifted is made again.
          span = window + 1 + math.max(0, math.min(2^52, arrival - now - offset))
        end
      end
      local is_new, needed = value == '', ends_count and ends or now + span
      if is_new then
        needed = 0
        if algorithm == SLIDING_WINDOW_LOG then
          value = string.rep('\0', 68) .. '\1' .. string.rep('\0', 115)
        elseif algorithm == TOKEN_BUCKET then
          value = pack('<dI6I6ddd', 0, 0, limit, 0, 0, 0)
        else
          value = string.rep('\0', algorithm == SLIDING_WINDOW_COUNTER and 40 or 32)
        end
      end
      local head = MARK .. pack('<ddd', ends, needed, duration)
      if algorithm == SLIDING_WINDOW_LOG then
        -- No record is in the copy: the first one behind it is number 0.
        value = sub(value, 89, 96) .. sub(value, 41, 52) .. '\0\0\0\0\0' .. sub(value, 58, 88) .. MARK .. sub(value, 97)
      end
      call('SETRANGE', key, '0', head .. value)
      expire(key, is_new, math.max(ends, needed) - now)
    end

    -- Returns the count of a banned key: of a log, the bytes from 44 to 197, none if it is empty.
    local function count_of(key, length)
      local _, needed, first = read(key, length)
      if length then return sub(first, 33) end
      if needed == 0 then return '' end
      local packed = call('GETRANGE', key, '44', '197')
      return sub(packed, 1, 44) .. sub(first, 33, 40) .. sub(packed, 53)
    end

    -- Handles a value that no algorithm accepts. If the key is banned, raises the error that `lua/check.lua` handles;
    -- while that judges a check again, returns the count and records the end of the ban in `functions.met`.
    local function behind(key, length)
      local ends = read(key, length)
      if not ends then
        functions.not_a_count()
      elseif ends <= now then
        -- Lifted also while a check is judged again: another of its charges may be banned and cost nothing, and then
        -- this one is committed.
        lift(key, length)
        error('AGAIN', 0)
      elseif not functions.met then
        error('BANNED', 0)
      end
      functions.met[key] = ends
      return count_of(key, length)
    end

    -- Evaluates charge `number` as if its key were not banned. A value that is not a count is an error, and stays.
    local function evaluate(run, number, cost, limit, window, parameter)
      functions.met = {}
      local succeeded, fits = pcall(run, now, {}, number, number, cost, 'evaluate', limit, window, parameter, false)
      functions.met = nil
      if not succeeded then error(fits, 0) end
      return fits
    end

    local of_keys = {lengths = LENGTHS, lift = lift, ban = ban, behind = behind, evaluate = evaluate}
    functions.bans = function() return of_keys end
    return of_keys
  end

  -- Bans that grow are longer than the window of the log that counts denials. So they are kept as a ban by hand is, and
  -- the key behind that of the denials has the length of the last ban, and the time until which it counts (doubles).
  -- Only the denial that begins a ban reads and writes that key. A value of another form is replaced.
  --
  -- Begins the ban of charge `number`, whose algorithm is `run`: the log of denials. The first ban lasts for
  -- `first_length`.
  local function begin_ban(run, keys, times, number, denials, first_length, longest, least_quiet)
    local SLIDING_WINDOW_LOG, key, last_ban = 1, keys[number], keys[number + 1]
    local value, length = redis.pcall('GETRANGE', last_ban, '0', '16'), first_length
    if type(value) == 'string' and #value == 16 then
      local last, forgotten = unpack('<dd', value)
      if now < forgotten and last > 0 and last % 1 == 0 then
        length = math.max(first_length, math.min(2 * last, longest))
      end
    elseif value ~= '' then
      call('UNLINK', last_ban)
    end
    local remembered = length + math.max(length, least_quiet)
    -- The whole limit leaves the log when the ban ends. So a process that reads its numbers alone denies, too.
    local stamped = now + length - first_length
    run(stamped, {}, number, number, denials, true, denials, first_length, 1, false)
    functions.bans().ban(key, now + length, length, SLIDING_WINDOW_LOG, denials, first_length, 1, true)
    call('SETRANGE', last_ban, '0', pack('<dd', length, now + remembered))
    expire(last_ban, true, remembered)
    -- As of a log of which no unit is available before the ban ends.
    keys[number], times[number] = length * 4, length
  end

  -- Returns the function of the length of the last ban. It has the parameters of an algorithm.
  local function last_ban(usage)
    local FORGET_DENIALS, keys = 36, KEYS
    return function(_, times, number, _, _, mode)
      if mode == 'evaluate' then return true end
      if usage == FORGET_DENIALS then call('UNLINK', keys[number]) end
      keys[number], times[number] = 1, 0
    end
  end

  -- Raises the error of a value that no algorithm has written: it is of another program, from a wrong restore, or
  -- damaged. Each algorithm checks the length of a value and the ranges of its fields when it reads them, before it
  -- writes anything. So no field makes a loop long, or a number of the reply wrong. `src/store/redis/net/error.rs` has
  -- the same code.
  local function not_a_count()
    error('NOTACOUNT the value is not a count', 0)
  end

  -- Returns the time of a key, its offset from the server's time, and whether that offset has just changed.
  --
  -- If the server's clock is set back, the time of a key continues from where it was, at the rate of the server's
  -- clock, so that no key is frozen until the clock has caught up. `offset` is the lead of the key's time, kept with
  -- the key; `last` is a time that the key has reached. A changed offset is written also with a denial, or each denial
  -- would start from `last` again. The clocks of clients differ, so with a client's clock the time of a key stands
  -- still instead.
  local function own_time(now, offset, last, key)
    if offset == 0 and last <= now then return now, 0, false end
    if not (offset >= 0 and now + offset < 2^53 and last < 2^53) or offset % 1 > 0 or last % 1 > 0 then
      not_a_count()
    end
    if tonumber(ARGV[2]) then return now, 0, false end
    local time = now + offset
    if time >= last then return time, offset, false end
    -- Nothing is written to a key that is banned.
    return last, last - now, not (functions.met and functions.met[key])
  end

  functions = {
    not_a_count = not_a_count, bans = bans, own_time = own_time, ring = false, begin_ban = begin_ban,
    last_ban = last_ban,
  }
  rare = function() return functions end
  return functions
end
