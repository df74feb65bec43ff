-- peek.lua: list ready jobs in the order in which claim leases them.
--
-- ARGV[2]  most jobs to list: 1..500
-- ARGV[3]  score of the job after which the list begins, '': from the start
-- ARGV[4]  message ID of that job
--
-- Returns for each: message ID, score, meta or ''. Promotes due jobs first, and stops
-- at the highest spilled priority, as claim does.
-- The job of ARGV[4] may be gone. Binary search among the jobs with its score finds
-- the place, so a page costs O(log^2 n) however many jobs share a millisecond.
local limit = int(ARGV[2], 1, 500)
local from = ARGV[3] ~= '' and int(ARGV[3], 0, 9007199254740991)
if #ARGV ~= 4 or not limit or (ARGV[3] ~= '' and (not from or #ARGV[4] ~= 12)) then return bad('peek') end
promote(clock())

-- after reports whether a > b in byte order; the < of Lua uses the locale.
local function after(a, b)
  for i = 1, 12 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return (x or 0) > (y or 0) end
  end
  return false
end

local start = 0
if from then
  local lo = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. fmt(from))
  local hi = lo + redis.call('ZCOUNT', KEYS[1], fmt(from), fmt(from))
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if after(redis.call('ZRANGE', KEYS[1], fmt(mid), fmt(mid))[1], ARGV[4]) then hi = mid else lo = mid + 1 end
  end
  start = lo
end
local page = redis.call('ZRANGE', KEYS[1], fmt(start), fmt(start + limit - 1), 'WITHSCORES')
local ids = {}
for i = 1, #page, 2 do
  if not reachable(tonumber(page[i + 1])) then break end
  ids[#ids + 1] = page[i]
end
if #ids == 0 then return {} end
local out = {}
for i, meta in ipairs(redis.call('HMGET', KEYS[4], unpack(ids))) do
  out[3 * i - 2], out[3 * i - 1], out[3 * i] = ids[i], fmt(tonumber(page[2 * i])), meta or ''
end
return out
