-- rebuild.lua: give a consumer without an epoch one.
--
-- KEYS[5]  control  HASH  e epoch
-- ARGV[1]  a new, random epoch
--
-- Returns the epoch that holds from now on: of racing callers one wins. Stands
-- without the prelude, as there is no epoch to check. Members that are still
-- there stay: what happened to them is not known here, and probing tells.
if #ARGV ~= 1 or #ARGV[1] < 1 then return redis.error_reply('ERR malformed rebuild') end
redis.call('HSETNX', KEYS[5], 'e', ARGV[1])
return redis.call('HGET', KEYS[5], 'e')
