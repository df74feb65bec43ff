-- renew.lua: replace the epoch of a consumer.
--
-- ARGV[2]  a new, random epoch
--
-- Returns {the new epoch}. The prelude makes this a compare-and-set: it passes only
-- while the caller's epoch is current. Members, tokens and counters stay.
if #ARGV ~= 2 or #ARGV[2] < 1 then return bad('renew') end
redis.call('HSET', KEYS[5], 'e', ARGV[2])
return {ARGV[2]}
