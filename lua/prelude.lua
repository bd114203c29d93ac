-- What all parts of the script share: the reply, the time and the TTL, and arithmetic on doubles.
--
-- Redis creates the functions of the script, and the locals that they share, in every call, which costs as much as a
-- few commands. So the script has few of both: a call creates the algorithms that it uses, and what is seldom needed
-- when it is needed; and each function looks up commands such as `redis.call` for itself.
--
-- Commands: 1 (TIME), unless the client sends its clock.

-- The reply replaces the keys: each charge leaves a number in `keys`, a time in `times`, and some leave more numbers.
-- `lua/check.lua` describes the reply. A table that has its size already is faster to fill.
local keys = KEYS
local times = #keys > 1 and {unpack(keys)} or {0}
local more, more_count = nil, 0

-- The charge that is handled now.
local charge = 1

-- The function of each algorithm that the policies use, by number; `true` until its file creates it.
local algorithms = {false, false, false, false}
for policy = 1, #ARGV[1], 22 do algorithms[string.byte(ARGV[1], policy)] = true end

-- Adds a number to the reply of a charge.
local function add(number)
  more, more_count = more or {unpack(times)}, more_count + 1
  more[more_count] = number
end

local now = tonumber(ARGV[3])
local by_server = not now
if by_server then
  local call = redis.call
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Returns the time of a key, its offset from the server's time, and whether that offset has just changed.
--
-- If the server's clock is set back, the time of a key continues from where it was, at the rate of the server's clock,
-- so that no key is frozen until the clock has caught up. `offset` is the lead of the key's time, kept with the key;
-- `last` is a time that the key has reached. A changed offset is written also with a denial, or each denial would start
-- from `last` again. The clocks of clients differ, so with a client's clock the time of a key stands still instead.
local function own_time(offset, last)
  if not by_server then return now, 0, false end
  local time = now + offset
  if time >= last then return time, offset, false end
  return last, last - now, true
end

-- Sets the TTL of a key that is needed for `time` microseconds. A second is added for rounding; with a client's clock a
-- minute is added, because that clock may be behind the server's. If Redis refuses, a new key is removed, because it
-- has no TTL.
local function expire(key, is_new, time)
  local slack = by_server and 1000 or 60000
  -- `..` and tostring would round to 14 digits.
  local milliseconds = string.format('%.0f', math.max(0, math.ceil(time / 1000)) + slack)
  local reply = redis.pcall('PEXPIRE', key, milliseconds)
  if type(reply) == 'table' then
    if is_new then redis.call('UNLINK', key) end
    error(reply)
  end
end

-- Returns the exact quotient and remainder of a * b / c, for integers a, b >= 0 and c > 0. Doubles are exact up to
-- 2^53. The product of a limit and a window in microseconds may exceed that; it is then divided digit by digit.
local function muldiv(a, b, c)
  local product = a * b
  if product < 2^53 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- A value of another format may hold any number. Division by digits would not end.
  if product == math.huge then error('a number in the value is too large') end
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
