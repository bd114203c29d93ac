-- The log of most tutorials: a sorted set with one member per unit and the time as its score.
-- Calls: TIME, ZREMRANGEBYSCORE, ZCARD; when allowed ZADD and PEXPIRE.
-- KEYS[1]; ARGV: cost, limit, window in microseconds, now in microseconds ('' = TIME). Returns allowed, remaining.
local key, cost, limit, window = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - window))
local used = redis.call('ZCARD', key)
if used + cost > limit then return {0, limit - used} end
local stamp = string.format('%.0f', now)
if cost == 1 then
  redis.call('ZADD', key, stamp, stamp .. ':1')
else
  -- One call adds up to 1 000 members; Lua's stack limits the arguments of a call.
  local added = 0
  while added < cost do
    local members = {}
    for unit = added + 1, math.min(cost, added + 1000) do
      members[#members + 1] = stamp
      members[#members + 1] = stamp .. ':' .. unit
    end
    redis.call('ZADD', key, unpack(members))
    added = added + 1000
  end
end
redis.call('PEXPIRE', key, math.ceil(window / 1000))
return {1, limit - used - cost}
