-- take_token.lua: the access token of an OAuth 2 client, or the right to fetch one.
--
-- KEYS[1]  token  HASH  v version, s sealed token, a time of its fetch, x its end,
--                       o who fetches now, u until when, all times in ms
-- ARGV[1]  version that the caller cannot use, '' none
-- ARGV[2]  the caller: a version that no other fetch has
-- ARGV[3]  length of the right, ms
--
-- Returns {'token', version, sealed, age ms, rest ms}, {'fetch'} for the one who may fetch, or
-- {'wait', ms} while another one does. A right ends after its length, also where the clock of Redis
-- went back.
-- Clock: TIME of this Redis.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local function fmt(n) return string.format('%.0f', n) end
local length = tonumber(ARGV[3])
local f = redis.call('HMGET', KEYS[1], 'v', 's', 'a', 'x', 'o', 'u')
local rest = tonumber(f[4] or '0') - now
if f[1] and f[1] ~= ARGV[1] and rest > 0 then
  return {'token', f[1], f[2], fmt(math.max(now - tonumber(f[3]), 0)), fmt(rest)}
end
local busy = tonumber(f[6] or '0') - now
if f[5] and f[5] ~= ARGV[2] and busy > 0 and busy <= length then return {'wait', fmt(busy)} end
redis.call('HSET', KEYS[1], 'o', ARGV[2], 'u', fmt(now + length))
redis.call('PEXPIRE', KEYS[1], fmt(math.max(rest, length)))
return {'fetch'}
