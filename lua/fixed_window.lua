-- Fixed window, aligned to the epoch: "start:count" in one string.
--
-- Calls: evaluate 1 (GET); commit 1 (SET) when charged, else 0.

local function make_fixed()
  return function(key, policy, cost, allowed)
    local limit, window = policy.limit, policy.window
    local kept, count = unpack_integers(call('GET', key), '^(%d+):(%d+)$')
    -- Clock guard: the key's window does not come again.
    local at = math.max(now, kept or 0)
    local start = at - at % window
    if kept ~= start then count = 0 end
    local fits = cost == 0 or count + cost <= limit
    if allowed == EVALUATE then return fits end
    if allowed == nil then allowed = fits end

    if cost > 0 and (allowed or (policy.count_rejected and cost <= limit)) then
      count = count + cost
      call('SET', key, integer(start) .. ':' .. integer(count), 'PX', ttl(start + window))
    end

    if count == 0 then return fits, limit, -1, 0, 0 end
    local finish = start + window - now
    return fits, math.max(0, limit - count), (fits or cost > limit) and -1 or finish, finish, finish
  end
end
