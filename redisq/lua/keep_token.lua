-- keep_token.lua: end the right to fetch, with the token that was fetched or without one.
--
-- KEYS[1]  token  HASH  as in take_token.lua
-- ARGV[1]  who fetched, which is the version of the token
-- ARGV[2]  sealed token
-- ARGV[3]  ms for which it may be used, 0: there is none to keep
--
-- Returns 1, or 0 where the right had ended and another one has it, or has used it. A right that
-- Redis lost is still good as long as there is nothing else.
-- Clock: TIME of this Redis.
local f = redis.call('HMGET', KEYS[1], 'o', 'v')
if f[1] and f[1] ~= ARGV[1] or not f[1] and f[2] then return 0 end
local ms = tonumber(ARGV[3])
redis.call('HDEL', KEYS[1], 'o', 'u')
if ms <= 0 then return 1 end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local function fmt(n) return string.format('%.0f', n) end
redis.call('HSET', KEYS[1], 'v', ARGV[1], 's', ARGV[2], 'a', fmt(now), 'x', fmt(now + ms))
redis.call('PEXPIRE', KEYS[1], fmt(ms))
return 1
