-- What all algorithms use: the time, and integer arithmetic on doubles. Lua's numbers are exact up to 2^53; a product of
-- a limit and a window in microseconds is not, so it is divided digit by digit when it does not fit.
--
-- Calls: 1 (TIME), unless the client gives its clock.

local call = redis.call

-- Covers the rounding of TTLs; with a client's clock, also that it may run slower than the server's.
local now, slack = tonumber(ARGV[1]), 60000
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000000 + time[2], 1000
end

local EXACT = 9007199254740992 -- 2^53

-- Returns the quotient and the remainder of a * b / c, exactly.
local function muldiv(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division over the digits of `a`, in the largest base for which no step leaves the exact range.
  local rest = b % c
  local quotient, carry = a * ((b - rest) / c), 0
  local base = 2
  while c * base * 4 <= EXACT do base = base * 2 end
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

-- `..` and tostring print 14 digits; microseconds since the epoch have 16.
local function integer(number)
  return string.format('%.0f', number)
end

-- Milliseconds until `instant`, rounded up, and some more: never 0, so that PX and PEXPIRE accept it.
local function ttl(instant)
  return integer(math.max(0, math.ceil((instant - now) / 1000)) + slack)
end

-- The integer fields of a packed value, nil for an absent one.
local function unpack_integers(value, pattern)
  if not value then return nil end
  local a, b, c = string.match(value, pattern)
  if not a then error({err = 'WRONGTYPE the key holds a value that is not a tollgate counter'}) end
  return tonumber(a), tonumber(b), tonumber(c)
end

-- See check.lua.
local EVALUATE = 'evaluate'
