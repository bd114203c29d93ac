-- Sliding window log: the step function F(t) = cost admitted up to t, as a sorted set with the cumulative cost as
-- score and the time stamp (microseconds, 16 digits) as member. One record per request, whatever its cost.
--
-- Let C be the newest cumulative cost. What is spent in (now - window, now] is C - F(now - window), so a cost fits if
-- and only if C + cost - limit <= F(now - window). The first record whose cumulative cost reaches that target is the
-- one that has to leave: its stamp is the exact Retry-After.
--
-- The newest expired record is kept, for it carries F(now - window). With `count_rejected` the spent amount may pass
-- the limit; records that lie more than one limit below C decide nothing and are dropped as well.

local log = {}

local function log_record(key, rank)
  local record = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
  return tonumber(record[1]), tonumber(record[2])
end

-- How many records have expired, what the newest of them carries, and the stamp of the oldest live one.
local function log_horizon(key, horizon)
  local head = redis.call('ZRANGE', key, 0, 1, 'WITHSCORES')
  local first, second = tonumber(head[1]), tonumber(head[3])
  if not first or first > horizon then return 0, 0, first end
  if not second or second > horizon then return 1, tonumber(head[2]), second end
  local expired, live = 2, redis.call('ZCARD', key) + 1
  while live - expired > 1 do
    local middle = math.floor((expired + live) / 2)
    if log_record(key, middle - 1) <= horizon then expired = middle else live = middle end
  end
  local _, spent = log_record(key, expired - 1)
  return expired, spent, (log_record(key, expired))
end

-- Microseconds until the cumulative cost `target` has left the window.
local function log_wait(s, target)
  if target <= s.base then return 0 end
  local record = redis.call('ZRANGEBYSCORE', s.key, integer(target), '+inf', 'LIMIT', 0, 1)
  return tonumber(record[1]) + s.window - s.now
end

function log.evaluate(s)
  local newest, total = log_record(s.key, -1)
  s.newest, s.total = newest or 0, total or 0
  -- Clock guard: time does not run backwards for a key. Stamps are rounded up by less than one resolution.
  s.at = math.max(s.now, s.newest - s.param + 1)
  s.expired, s.base, s.oldest = log_horizon(s.key, s.at - s.window)
  return s.total + s.cost - s.limit <= s.base
end

function log.commit(s, charged)
  if charged then
    s.total = s.total + s.cost
    s.newest = math.max(s.newest, math.ceil(s.at / s.param) * s.param)
    s.oldest = s.oldest or s.newest
    redis.call('ZADD', s.key, integer(s.total), string.format('%016.0f', s.newest))
    local settled = s.expired
    if s.count_rejected then
      settled = math.max(settled, redis.call('ZCOUNT', s.key, '-inf', integer(s.total - s.limit)))
    end
    if settled > 1 then redis.call('ZREMRANGEBYRANK', s.key, 0, settled - 2) end
    if redis.call('PTTL', s.key) < (s.window + s.param) / 1000 + s.slack then
      redis.call('PEXPIRE', s.key, ttl(0, 2 * s.window, s.slack))
    end
  end
  local spent = s.total - s.base
  local available = math.max(0, s.limit - spent)
  local retry = -1
  if s.violated and s.cost <= s.limit then retry = log_wait(s, s.total + s.cost - s.limit) end
  local next_unit, reset = 0, 0
  if spent > s.limit then
    next_unit = log_wait(s, s.total + 1 - s.limit)
  elseif spent > 0 then
    next_unit = s.oldest + s.window - s.now
  end
  if spent > 0 then reset = s.newest + s.window - s.now end
  return available, retry, next_unit, reset
end
