-- peek.lua: list ready jobs in the order in which claim leases them.
--
-- ARGV[2]  most jobs to list: 1..500
-- ARGV[3]  score of the job after which the list begins, '': from the start
-- ARGV[4]  message ID of that job
-- ARGV[5]  window
--
-- Returns for each: message ID, score, meta or ''. The order is that of a claim at a share
-- of 100, and the scores are without the part of retries. Promotes due jobs first, and
-- leaves out the jobs that reach of grant.lua excludes, as claim does.
-- The job of ARGV[4] may be gone. Binary search among the jobs with its score finds
-- the place, so a page costs O(log^2 n) however many jobs share a millisecond.
local limit = int(ARGV[2], 1, 500)
local from = ARGV[3] ~= '' and int(ARGV[3], 0, 4503599627370495)
local cap = int(ARGV[5] or '', 1, 2147483647)
if #ARGV ~= 5 or not cap or not limit or (ARGV[3] ~= '' and (not from or #ARGV[4] ~= 12)) then return bad('peek') end
promote(clock())

-- place returns the number of jobs at the begin of a lane that come before the cursor or
-- are its job. lane is 0 or RETRY, and begins at that place of the set.
local function place(lane, begin)
  if not from then return begin end
  local at = fmt(from + lane)
  local lo = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. at)
  local hi = lo + redis.call('ZCOUNT', KEYS[1], at, at)
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if after(redis.call('ZRANGE', KEYS[1], fmt(mid), fmt(mid))[1], ARGV[4]) then hi = mid else lo = mid + 1 end
  end
  return lo
end
-- list lists up to limit jobs of a lane, from a place to the one before last.
local function list(start, last)
  last = math.min(start + limit, last) - 1
  if start > last then return {} end
  return redis.call('ZRANGE', KEYS[1], fmt(start), fmt(last), 'WITHSCORES')
end
local total = redis.call('ZCARD', KEYS[1])
local retries = first_ready(total) -- place of the first one
local firsts, last = retries, total
if spilled >= 0 then
  firsts = redis.call('ZCOUNT', KEYS[1], '-inf', reach(0))
  if not delayed_is_full(total - retries, cap) then last = redis.call('ZCOUNT', KEYS[1], '-inf', reach(RETRY)) end
end
local page = list(place(0, 0), firsts)
if retries < last then page = merged(page, list(place(RETRY, retries), last), limit) end
if #page == 0 then return {} end
local ids, out = {}, {}
for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
for i, meta in ipairs(redis.call('HMGET', KEYS[4], unpack(ids))) do
  out[3 * i - 2], out[3 * i - 1], out[3 * i] = ids[i], fmt(tonumber(page[2 * i]) % RETRY), meta or ''
end
return out
