-- hold.lua: grant no leases of the consumer for a while, except by ID.
--
-- ARGV[2]  ms, 0: end the hold
--
-- Returns {1}. A longer hold is never shortened but by 0, or if the clock of Redis went
-- back since. Leases that exist stay.
local wait = int(ARGV[2], 0, 1099511627776)
if #ARGV ~= 2 or not wait then return bad('hold') end
local now = clock()
local till, since = string.match(hold or '0 0', '^(%d+) (%d+)$')
if wait == 0 then
  redis.call('HDEL', KEYS[5], 'h')
elseif now + wait > tonumber(till) or tonumber(since) > now then
  redis.call('HSET', KEYS[5], 'h', fmt(now + wait) .. ' ' .. fmt(now))
end
return {1}
