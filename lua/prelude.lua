-- Shared by all algorithms: the time, and integer arithmetic on doubles. Doubles are exact up to 2^53. The product of a
-- limit and a window in microseconds may exceed that; such a product is divided digit by digit.
--
-- Commands: 1 (TIME), unless the client sends its clock.
--
-- Redis creates the closures of the script, and the locals that they share, in every call, so the script has few of
-- them.

local call, pack, unpack = redis.call, struct.pack, struct.unpack

local now = tonumber(ARGV[1])
local by_server = not now
if by_server then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Returns the time of a key, its offset from the server's time, and whether the offset has just changed.
--
-- If the server's clock is set back, the time of a key continues from where it was, at the rate of the server's clock,
-- so that no key is frozen until the clock has caught up. `offset` is the lead of the key's time, kept with the key;
-- `last` is a time that the key has reached. A changed offset is written also with a denial, or each denial would start
-- from `last` again. The clocks of clients differ, so with a client's clock the time of a key stands still instead.
local function own_time(now, offset, last)
  if not by_server then return now, 0, false end
  local time = now + offset
  if time >= last then return time, offset, false end
  return last, last - now, true
end

-- Sets the TTL of a key to `time` milliseconds. If Redis refuses, a new key is removed, because it has no TTL.
local function expire(key, is_new, time)
  local reply = redis.pcall('PEXPIRE', key, time)
  if type(reply) == 'table' then
    if is_new then call('UNLINK', key) end
    error(reply)
  end
end

-- Returns the exact quotient and remainder of a * b / c, for integers a, b >= 0 and c > 0.
local function muldiv(a, b, c)
  local product = a * b
  if product < 2^53 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division over the digits of `a`, in the largest base whose steps all stay in the exact range.
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

-- Returns the TTL in milliseconds of a key that is needed for `time` microseconds. A second is added for rounding; with
-- a client's clock a minute is added, because that clock may be behind the server's.
local function ttl(time)
  local slack = by_server and 1000 or 60000
  -- `..` and tostring would round to 14 digits.
  return string.format('%.0f', math.max(0, math.ceil(time / 1000)) + slack)
end
