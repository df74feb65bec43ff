-- offer.lua: add fresh jobs of one priority, all or none, and lease them to the
-- caller if no other job waits.
--
-- ARGV[2]    window: ready jobs kept in Redis
-- ARGV[3]    priority of all the jobs
-- ARGV[4]    oldest time in their IDs, Unix ms
-- ARGV[5]    lease ms, 0: add without leasing
-- ARGV[6..]  1..500 message IDs
-- last       limits, may be absent; see grant.lua
--
-- Returns {added, known, first fence, buckets that count the leases}. With fence 0 the
-- jobs are ready. With another fence all of them are leased and charged their first
-- attempt; the tokens are <epoch>.<fence>, and the fences count up from the first.
-- Returns {-1, 0, 0, ''} and changes nothing when the window has no room for all of them,
-- when jobs are spilled, or when an ID is not newer than b (see brought.lua).
-- enqueue.lua then decides for each job.
--
-- This script runs for every published message, so it handles one case only: jobs
-- that are offered for the first time, due now and never attempted. Known jobs stay
-- unchanged. A lease from here equals the one that claim.lua would give right after,
-- under the rules of grant.lua: n leases may be granted, and no job is ready or due
-- that comes before these. A retry does so only if the share is 100.
-- Invariant: a fresh job is in no other set. Cost: O(k log n), one ZADD, and one
-- HSET for leases.
local cap, priority = int(ARGV[2], 1, 2147483647), int(ARGV[3], 0, 1023)
local oldest, lease, n = int(ARGV[4], 0, 281474976710655), int(ARGV[5], 0, 1099511627776), #ARGV - 5
if not cap or not priority or not oldest or not lease or n < 1 or n > 500 then return bad('offer') end
local named = {}
for i = 1, n do
  local id = ARGV[i + 5]
  if #id ~= 12 then return bad('offer') end
  if lease > 0 then
    if named[id] then lease = 0 end -- the second time it counts as known
    named[id] = true
  end
end
local waiting = redis.call('ZCARD', KEYS[1])
if spilled >= 0 or oldest <= brought or waiting + n > cap then return {-1, 0, 0, ''} end
local now = clock()
-- place returns the time since which a job is ready, and its score, as enqueue.lua has them.
-- The jobs of a call often share the millisecond.
local shared, since, at
local function place(id)
  local head = string.sub(id, 1, 6)
  if head ~= shared then
    shared, since = head, math.min(now, made(id))
    at = score(priority, 0, since)
  end
  return since, at
end
-- others reports whether another job comes before these.
local function others()
  if waiting > 0 and (share == 100 or first_ready(waiting) > 0) then return true end
  local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if not head[1] or tonumber(head[2]) > now then return false end
  local _, attempts = unpack_meta(redis.call('HGET', KEYS[4], head[1]), 0)
  return share == 100 or attempts == 0
end
if lease > 0 and not others() and not delayed_is_full(waiting, cap) then
  if allowed(n, now) == n then
    local deadline, first = fmt(now + lease), priority .. '|1|0|' .. epoch .. '.'
    local ids, before, behind, leases = {}, {}, {}, {}
    for i = 1, n do
      ids[i], before[i], behind[i] = ARGV[i + 5], first, '|' .. place(ARGV[i + 5])
      leases[2 * i - 1], leases[2 * i] = deadline, ids[i]
    end
    return {n, 0, grant(n, ids, before, behind, leases, now)}
  end
end
local adds = {}
for i = 1, n do
  local _, s = place(ARGV[i + 5])
  adds[2 * i - 1] = s
  adds[2 * i] = ARGV[i + 5]
end
local added = redis.call('ZADD', KEYS[1], 'NX', unpack(adds))
return {added, n - added, 0, ''}
