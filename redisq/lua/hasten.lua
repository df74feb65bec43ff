-- hasten.lua: make delayed jobs ready now.
--
-- ARGV[2..]  1..500 message IDs
--
-- Returns for each: 0 unknown, 1 ready because of this call, 2 unchanged: it was ready or
-- leased, its delay is over, or it is parked (see park.lua), which is no delay.
-- A hastened job is ready since now, with its attempts.
-- Replay: harmless. Removes before it adds. Cost: O(k log n).
local ids = {}
for i = 2, #ARGV do
  if #ARGV[i] ~= 12 then return bad('hasten') end
  ids[i - 1] = ARGV[i]
end
if #ids < 1 or #ids > 500 then return bad('hasten') end
local now = clock()
local metas = redis.call('HMGET', KEYS[4], unpack(ids))
local ready = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local delayed = redis.call('ZMSCORE', KEYS[2], unpack(ids))
local leased = redis.call('ZMSCORE', KEYS[3], unpack(ids))
local out, gone, adds, plain, moved = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local priority, attempts, flags, _, since = unpack_meta(metas[i], 0)
  out[i] = 2
  if delayed[i] then
    if since == '' and tonumber(delayed[i]) > now and not moved[id] then
      out[i], moved[id] = 1, true
      gone[#gone + 1] = id
      adds[#adds + 1] = score(priority, attempts, now)
      adds[#adds + 1] = id
      if attempts == 0 and flags == 0 then plain[#plain + 1] = id end
    end
  elseif not ready[i] and not leased[i] then
    out[i] = 0
  end
end
if #gone > 0 then
  redis.call('ZREM', KEYS[2], unpack(gone))
  redis.call('ZADD', KEYS[1], unpack(adds))
  if #plain > 0 then redis.call('HDEL', KEYS[4], unpack(plain)) end
end
return out
