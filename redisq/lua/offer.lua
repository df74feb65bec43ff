-- offer.lua: put fresh jobs of one priority into the queue, all or none.
--
-- ARGV[2]    window: ready jobs kept here
-- ARGV[3]    priority of all of them
-- ARGV[4]    oldest time in their IDs, Unix ms
-- ARGV[5..]  1..500 message IDs
--
-- Returns {added, known}, or {-1, 0} and does nothing when the window has no room
-- for all of them or has spilled before, or one may have come another way (see
-- brought.lua): then enqueue.lua decides one by one.
--
-- This is what runs for every published message, so it does one thing: jobs
-- that nobody offered before, due now, never attempted. Known ones stay as they are.
-- Invariant: a fresh job is in no other set. Cost: O(k log n), one ZADD.
local cap, priority = int(ARGV[2], 1, 2147483647), int(ARGV[3], 0, 1023)
local oldest, n = int(ARGV[4], 0, 281474976710655), #ARGV - 4
if not cap or not priority or not oldest or n < 1 or n > 500 then return bad('offer') end
if spilled >= 0 or oldest <= brought or redis.call('ZCARD', KEYS[1]) + n > cap then return {-1, 0} end
local s = score(priority, clock())
local adds = {}
for i = 1, n do
  local id = ARGV[i + 4]
  if #id ~= 12 then return bad('offer') end
  adds[2 * i - 1] = s
  adds[2 * i] = id
end
local added = redis.call('ZADD', KEYS[1], 'NX', unpack(adds))
return {added, n - added}
