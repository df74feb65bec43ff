-- ack.lua: remove jobs whose outcome is stored.
--
-- ARGV[2..]  1..500 message IDs
--
-- Returns {number of jobs that were in a set}. Needs no token: the outcome is
-- stored, so a lease on the job has no use any more.
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
