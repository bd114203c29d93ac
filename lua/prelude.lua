-- What all parts of the script share: the time, the reply, the TTL, and arithmetic on doubles.
--
-- Redis creates the functions of the script, and the locals that they capture, in every call: each costs as much as 5
-- to 10 accesses to a table, and a lone check has few of those. So a call creates only the functions that it uses. What
-- functions share, they get as parameters, and each looks up commands such as `redis.call` for itself.
--
-- Commands: 1 (TIME), unless the client sends its clock.

-- What the call uses; `lua/FORMAT.md` lists the flags.
local used = string.byte(ARGV[1])

local now = tonumber(ARGV[2])
if not now then
  local call = redis.call
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The reply: the number of a charge replaces its key in `keys`, and its time is in `times`. Behind the times of all
-- charges follow more numbers. `lua/FORMAT.md` describes them. A table that has its size already is faster to fill.
local keys = KEYS
local times = #keys > 1 and {unpack(keys)} or {0}

-- Sets the TTL of a key that is needed for `time` microseconds. A second is added for rounding; with a client's clock a
-- minute is added, because that clock may be behind the server's. If Redis refuses, a new key is removed, because it
-- has no TTL.
local function expire(key, is_new, time)
  local slack = tonumber(ARGV[2]) and 60000 or 1000
  local milliseconds = math.max(0, math.ceil(time / 1000)) + slack
  -- `..` and tostring would round to 14 digits. `%d` is several times as fast as `%.0f`, but it has
  -- only 32 bits on some servers.
  milliseconds = string.format(milliseconds < 2^31 and '%d' or '%.0f', milliseconds)
  local reply = redis.pcall('PEXPIRE', key, milliseconds)
  if type(reply) == 'table' then
    if is_new then redis.call('UNLINK', key) end
    error(reply)
  end
end

local muldiv

-- Only counters and buckets need such arithmetic.
if used % 4 >= 2 or used % 16 >= 8 then
  -- Returns the exact quotient and remainder of a * b / c, for integers a, b >= 0 and c > 0. Doubles are exact up to
  -- 2^53. The product of a limit and a window in microseconds may exceed that; it is then divided digit by digit.
  muldiv = function(a, b, c)
    local product = a * b
    if product < 2^53 then
      local rest = product % c
      return (product - rest) / c, rest
    end
    -- Only wrong arguments: the numbers of values are checked when they are read. Division by digits would not end.
    if not (a < 2^53 and b < 2^53 and c >= 1) then error('an argument is out of range') end
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
end
