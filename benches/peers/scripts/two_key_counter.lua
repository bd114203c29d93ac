-- Plain sliding window counter: one key per window. The count of the previous window is weighted by the share of that
-- window that the sliding window still covers.
-- Calls: TIME, GET, GET; when allowed INCRBY and PEXPIRE.
-- KEYS[1]; ARGV: cost, limit, window in microseconds, now in microseconds ('' = TIME). Returns allowed, remaining.
local cost, limit, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local number = math.floor(now / window)
local current_key = KEYS[1] .. ':' .. string.format('%.0f', number)
local current = tonumber(redis.call('GET', current_key) or 0)
local previous = tonumber(redis.call('GET', KEYS[1] .. ':' .. string.format('%.0f', number - 1)) or 0)
local used = current + math.floor(previous * ((number + 1) * window - now) / window)
if used + cost > limit then return {0, limit - used} end
redis.call('INCRBY', current_key, cost)
redis.call('PEXPIRE', current_key, math.ceil(2 * window / 1000))
return {1, limit - used - cost}
