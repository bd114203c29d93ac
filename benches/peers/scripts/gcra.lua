-- Plain GCRA: one string holds the theoretical arrival time.
-- Calls: TIME, GET; when allowed SET.
-- KEYS[1]; ARGV: cost, limit, window in microseconds, now in microseconds ('' = TIME).
-- Returns allowed (1 or 0), remaining units, retry-after in microseconds.
local key, cost, limit, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local interval = window / limit
local arrival = math.max(now, tonumber(redis.call('GET', key)) or now)
local next_arrival = arrival + cost * interval
local allow_at = next_arrival - window
if allow_at > now then return {0, 0, math.ceil(allow_at - now)} end
redis.call('SET', key, string.format('%.3f', next_arrival), 'PX', math.ceil((next_arrival - now) / 1000) + 1)
return {1, math.floor((window - (next_arrival - now)) / interval), 0}
