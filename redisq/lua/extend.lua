-- extend.lua: move the deadline of leases.
--
-- ARGV[2]    lease ms from now on, also when that is sooner than before
-- ARGV[3..]  1..500 times: message ID, token
--
-- Returns for each 1 extended, 0 lease lost.
-- The first write only removes, so a Redis at its memory limit accepts the script.
-- The script never removes the last member of leased and adds members afterwards.
-- While a slot of a Cluster moves to another node, Redis stops a script that returns
-- to a missing key, and keeps the writes before that point. Cost: O(k log n).
local lease, n = int(ARGV[2], 1, 1099511627776), (#ARGV - 2) / 2
if not lease or not int(n, 1, 500) then return bad('extend') end
local ids, tokens = {}, {}
for i = 1, n do
  ids[i], tokens[i] = ARGV[2 * i + 1], ARGV[2 * i + 2]
  if #ids[i] ~= 12 then return bad('lease') end
end
local deadline = fmt(clock() + lease)
local out, adds = {}, {}
for i, meta in ipairs(leased(ids, tokens)) do
  out[i] = 0
  if meta then
    out[i] = 1
    adds[#adds + 1] = deadline
    adds[#adds + 1] = ids[i]
  end
end
if #adds > 0 then
  redis.call('ZREM', KEYS[3], '') -- removes nothing; see the header
  redis.call('ZADD', KEYS[3], unpack(adds))
end
return out
