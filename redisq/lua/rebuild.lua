-- rebuild.lua: give a consumer without an epoch one.
--
-- KEYS[5]  control  HASH  e epoch, t when reclaim last looked
-- ARGV[1]  a new, random epoch
--
-- Returns the epoch that holds from now on: of racing callers one wins. Stands
-- without the prelude, as there is no epoch to check. Members that are still
-- there stay: what happened to them is not known here, and probing tells. The new
-- state counts as looked at, so that reclaim knows when the clock goes back at once.
if #ARGV ~= 1 or #ARGV[1] < 1 then return redis.error_reply('ERR malformed rebuild') end
if redis.call('HSETNX', KEYS[5], 'e', ARGV[1]) == 1 then
  redis.call('HSET', KEYS[5], 't', redis.call('TIME')[1] .. '000')
end
return redis.call('HGET', KEYS[5], 'e')
