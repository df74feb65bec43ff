-- grant.lua: stands behind the prelude of scripts that lease jobs: the one rule of
-- what may be granted, and the one place that writes leases.

-- grantable returns how many of n leases may be granted now, in the order of the
-- queue. None while delayed holds four windows: a consumer that fails every job must
-- not move its whole backlog there. A hold or a rate of the consumer lowers the
-- answer here. Cost: one count.
local function grantable(n, cap)
  if n > 0 and redis.call('ZCARD', KEYS[2]) >= 4 * cap then return 0 end
  return n
end

-- reachable tells whether the ready job at that score may be granted, and reach is the
-- end of their range: jobs below the highest spilled priority stay, because the store
-- has better ones and the refill brings them.
local function reachable(s) return spilled < 0 or priority_of(s) >= spilled end
local function reach() return '(' .. fmt((1024 - spilled) * P42) end

-- grant leases n jobs that the caller has taken out of their sets, and returns the
-- first fence. The meta value of the i-th is before[i], its fence and behind[i], as
-- pack writes it; before ends with the epoch and a dot. leases is what ZADD takes.
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
