-- spilled.lua: set the highest priority that has jobs outside the window.
--
-- ARGV[2]  highest priority with jobs outside, -1: none
-- ARGV[3]  number of spills that the caller read (see stats.lua), -1: set in any case
--
-- Returns {1 set, 0 jobs were spilled after the caller read}.
local priority, spills = int(ARGV[2], -1, 1023), int(ARGV[3], -1, 9007199254740991)
if #ARGV ~= 3 or not priority or not spills then return bad('spilled') end
if spills >= 0 and tonumber(redis.call('HGET', KEYS[5], 'ss') or '0') ~= spills then return {0} end
if priority < 0 then
  redis.call('HDEL', KEYS[5], 'sp')
else
  redis.call('HSET', KEYS[5], 'sp', fmt(priority))
end
return {1}
