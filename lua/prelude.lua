-- What all algorithms use: the time, and integer arithmetic on doubles. Lua's numbers are exact up to 2^53; a product of
-- a limit and a window in microseconds is not, so it is divided digit by digit when it does not fit.
--
-- Calls: 1 (TIME), unless the client gives its clock.
--
-- Closures, and locals that they share, are made anew in each call of the script. So there are few of both.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

local now = tonumber(ARGV[1])
local by_server = not now
if by_server then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The server's clock may be set back. Then the key's own time goes on from where it was, at the pace of the server's:
-- nobody is frozen until the clock has caught up. `offset` is what the key's time is ahead, kept with the key; `last` is
-- a time that has been. Returns the key's time, its offset, and whether that has just changed: it is then written down
-- even with a denial, or each would begin anew. Clients' clocks differ, so by theirs a key's time just stands.
local function own_time(now, offset, last)
  if not by_server then return now, 0, false end
  local time = now + offset
  if time >= last then return time, offset, false end
  return last, last - now, true
end

-- Sets the TTL of a key, in milliseconds. Where Redis does not let it, a key that has none from before is taken away.
local function expire(key, is_new, time)
  local reply = redis.pcall('PEXPIRE', key, time)
  if type(reply) == 'table' then
    if is_new then call('UNLINK', key) end
    error(reply)
  end
end

-- Returns the quotient and the remainder of a * b / c, exactly, for whole a, b >= 0 and c > 0.
local function muldiv(a, b, c)
  local product = a * b
  if product < 2^53 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division over the digits of `a`, in the largest base for which no step leaves the exact range.
  local rest = b % c
  local quotient, carry = a * ((b - rest) / c), 0
  local base = 2
  while c * base * 4 <= 2^53 do base = base * 2 end
  local place = 1
  while place * base <= a do place = place * base end
  local digits = 0
  while place >= 1 do
    local step = carry * base + (math.floor(a / place) % base) * rest
    carry = step % c
    digits = digits * base + (step - carry) / c
    place = place / base
  end
  return quotient + digits, carry
end

-- The TTL, in milliseconds, of what is to live for so many microseconds: a little longer, for rounding; with a client's
-- clock a minute, for it may run slower than the server's.
local function ttl(time)
  local slack = by_server and 1000 or 60000
  -- `..` and tostring print 14 digits.
  return string.format('%.0f', math.max(0, math.ceil(time / 1000)) + slack)
end
