-- probe.lua: report the state of jobs.
--
-- ARGV[2..]  1..500 message IDs
--
-- Returns for each: state (0 unknown, 1 ready, 2 delayed, 3 leased), score in
-- that set or '', meta or ''. Read only. Cost: O(k).
local ids = {}
for i = 2, #ARGV do
  if #ARGV[i] ~= 12 then return bad('probe') end
  ids[i - 1] = ARGV[i]
end
if #ids < 1 or #ids > 500 then return bad('probe') end
local out = {}
for i, meta in ipairs(redis.call('HMGET', KEYS[4], unpack(ids))) do
  out[3 * i - 2], out[3 * i - 1], out[3 * i] = 0, '', meta or ''
end
for set = 1, 3 do
  for i, s in ipairs(redis.call('ZMSCORE', KEYS[set], unpack(ids))) do
    if s then out[3 * i - 2], out[3 * i - 1] = set, fmt(tonumber(s)) end
  end
end
return out
