-- rebuild.lua: set the epoch of a consumer that has none.
--
-- KEYS[5]  control  HASH  e epoch, t time of the last reclaim, ms, sp highest spilled priority
-- ARGV[1]  a new, random epoch
-- ARGV[2]  highest priority that has jobs outside the window, -1: none is known
--
-- Returns the epoch that is valid from now on; one of several racing callers wins.
-- Has no prelude, since there is no epoch to compare. Members that are still in the
-- sets stay. The script sets t, so that the first reclaim can already notice a clock
-- that went back.
local sp = tonumber(ARGV[2] or '')
if #ARGV ~= 2 or #ARGV[1] < 1 or not sp or sp < -1 or sp > 1023 then return redis.error_reply('ERR malformed rebuild') end
if redis.call('HSETNX', KEYS[5], 'e', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[5], 't', redis.call('TIME')[1] .. '000')
  if sp >= 0 then redis.call('HSET', KEYS[5], 'sp', ARGV[2]) end
end
return redis.call('HGET', KEYS[5], 'e')
