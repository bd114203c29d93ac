-- A slower design of the log: the step function F(t) = cost admitted up to t as a sorted set, with the cumulative cost
-- as score and the time stamp (microseconds, 16 digits) as member. One record per request, whatever its cost.
--
-- Let C be the newest cumulative cost. The cost spent in (now - window, now] is C - F(now - window), so a cost fits if
-- and only if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target must
-- expire before the cost fits: its stamp gives the exact retry-after. The newest expired record is kept, because it
-- holds F(now - window).
--
-- Calls: TIME, ZRANGE; ZRANGEBYSCORE near the limit; when allowed ZRANGE, ZADD, PTTL, ZREMRANGEBYRANK when records
-- expire, and PEXPIRE once per window.
-- KEYS[1]; ARGV: cost, limit, window in microseconds, now in microseconds ('' = TIME).
-- Returns allowed (1 or 0), retry-after in microseconds.
local key, cost, limit, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
local newest_at, total = tonumber(newest[1] or 0), tonumber(newest[2] or 0)
now = math.max(now, newest_at)
local target = total + cost - limit
if target > 0 then
  local leaving = redis.call('ZRANGEBYSCORE', key, string.format('%.0f', target), '+inf', 'LIMIT', 0, 1)
  local wait = tonumber(leaving[1]) + window - now
  if wait > 0 then return {0, wait} end
end
local oldest, expired = redis.call('ZRANGE', key, 1, 2), 0
for index = 1, #oldest do
  if tonumber(oldest[index]) <= now - window then expired = index end
end
redis.call('ZADD', key, string.format('%.0f', total + cost), string.format('%016.0f', now))
if expired > 0 then redis.call('ZREMRANGEBYRANK', key, 0, expired - 1) end
if redis.call('PTTL', key) < window / 1000 then redis.call('PEXPIRE', key, math.ceil(2 * window / 1000)) end
return {1, 0}
