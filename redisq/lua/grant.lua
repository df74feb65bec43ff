-- grant.lua: part of the scripts that lease jobs. It has the only rule of how many
-- jobs may be leased, and the only code that writes new leases. Follows the prelude.

-- grantable returns how many of n leases may be granted now, in queue order. It
-- returns 0 while delayed holds four windows: a consumer that fails every job must
-- not move its whole backlog to delayed. A limit for the consumer, such as a rate,
-- belongs here. Cost: one count.
local function grantable(n, cap)
  if n > 0 and redis.call('ZCARD', KEYS[2]) >= 4 * cap then return 0 end
  return n
end

-- reachable reports whether a ready job with that score may be leased; reach returns
-- the upper bound of such scores. A job below the highest spilled priority may not be
-- leased: the store has more urgent jobs, which the refill loads.
local function reachable(s) return spilled < 0 or priority_of(s) >= spilled end
local function reach() return '(' .. fmt((1024 - spilled) * P42) end

-- grant leases n jobs that the caller has removed from their sets, and returns the
-- first fence. The meta value of job i is before[i] .. fence .. behind[i], in the form
-- that pack writes; before[i] ends with the epoch and a dot. leases holds the
-- arguments of ZADD: deadline, ID, ...
local function grant(n, ids, before, behind, leases)
  local fence = redis.call('HINCRBY', KEYS[5], 'f', n) - n
  local values = {}
  for i = 1, n do
    values[2 * i - 1], values[2 * i] = ids[i], before[i] .. (fence + i) .. behind[i]
  end
  redis.call('ZADD', KEYS[3], unpack(leases))
  redis.call('HSET', KEYS[4], unpack(values))
  return fence + 1
end
