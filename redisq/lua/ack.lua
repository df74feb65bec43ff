-- ack.lua: forget jobs whose outcome the store has.
--
-- ARGV[2..]  1..500 message IDs
--
-- Returns {how many were known}. Needs no lease: the store has decided, and
-- whoever holds a lease would only learn that the job is over.
-- Replay: harmless, returns 0. Cost: O(k log n).
if #ARGV < 2 or #ARGV > 501 then return bad('ack') end
for i = 2, #ARGV do
  if #ARGV[i] ~= 12 then return bad('ack') end
end
local removed = redis.call('ZREM', KEYS[3], unpack(ARGV, 2))
if removed < #ARGV - 1 then
  removed = removed + redis.call('ZREM', KEYS[1], unpack(ARGV, 2)) + redis.call('ZREM', KEYS[2], unpack(ARGV, 2))
end
redis.call('HDEL', KEYS[4], unpack(ARGV, 2))
return {removed}
