-- ack.lua: forget jobs whose outcome the store has.
--
-- ARGV[2..]  1..500 message IDs
--
-- Returns {how many were known}. Needs no lease: the store has decided, and
-- whoever holds a lease would only learn that the job is over.
-- Replay: harmless, returns 0. Cost: O(k log n).
local ids = {}
for i = 2, #ARGV do
  if #ARGV[i] ~= 12 then return bad('ack') end
  ids[i - 1] = ARGV[i]
end
if #ids < 1 or #ids > 500 then return bad('ack') end
local removed = redis.call('ZREM', KEYS[3], unpack(ids))
if removed < #ids then
  removed = removed + redis.call('ZREM', KEYS[1], unpack(ids)) + redis.call('ZREM', KEYS[2], unpack(ids))
end
redis.call('HDEL', KEYS[4], unpack(ids))
return {removed}
