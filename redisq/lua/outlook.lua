-- outlook.lua: what keeps the jobs of a consumer, and one of them, from being leased.
--
-- ARGV[2]  message ID of the job, '': none
-- last     limits, may be absent; see grant.lua
--
-- Returns {time ms, ready, delayed, leased, highest spilled priority or -1, 1 a scan of the
-- store has ended since the state began, time since which the oldest ready job is ready ms,
-- end ms of the first lease, end ms of a hold, the limit that keeps a ready job back (0 none,
-- 1 a rate, 2 the concurrency), ms until a rate allows one, parked jobs, the first of them or
-- '', delayed jobs with attempts, due ms of the first delayed job that is not parked, then of
-- the job: state as in probe.lua, score or '', meta or '', jobs that come before it, those of
-- them with a higher priority}. Times are 0 where there is no such job. A delayed job that is
-- due counts as ready, as the next claim makes it.
--
-- Read only. Looks at 1000 ready and 1000 delayed jobs at most: beyond these the oldest and
-- the parked ones are of those. Cost: O(1000 + log n).
local id = ARGV[2]
if not id or (id ~= '' and #id ~= 12) or #ARGV ~= 2 then return bad('outlook') end
local LOOK = 999
local now = clock()

-- head returns the score of the first member of a set, 0 where it is empty.
local function head(set)
  local first = redis.call('ZRANGE', KEYS[set], 0, 0, 'WITHSCORES')
  return first[1] and tonumber(first[2]) or 0
end

local passed = redis.call('ZCOUNT', KEYS[2], '-inf', fmt(now))
local oldest = 0
local ready = redis.call('ZRANGE', KEYS[1], 0, LOOK, 'WITHSCORES')
for i = 2, #ready, 2 do
  local since = tonumber(ready[i]) % P42
  if oldest == 0 or since < oldest then oldest = since end
end
local due = head(2)
if passed > 0 and (oldest == 0 or due < oldest) then oldest = due end

local parked, blocked, attempted, first = 0, '', 0, 0
local later = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. fmt(now), '+inf', 'WITHSCORES', 'LIMIT', 0, LOOK + 1)
if #later > 0 then
  local ids = {}
  for i = 1, #later, 2 do ids[#ids + 1] = later[i] end
  for i, meta in ipairs(redis.call('HMGET', KEYS[4], unpack(ids))) do
    local _, attempts, _, _, since = unpack_meta(meta, 0)
    if since ~= '' then
      parked = parked + 1
      if blocked == '' or after(blocked, ids[i]) then blocked = ids[i] end
    else
      if first == 0 then first = tonumber(later[2 * i]) end
      if attempts > 0 then attempted = attempted + 1 end
    end
  end
end

local till = 0
if hold then
  local to, since = string.match(hold, '^(%d+) (%d+)$')
  if tonumber(to) > now and tonumber(since) <= now + BACK then till = tonumber(to) end
  hold = nil -- the limits below are those beside it
end
local limit, wait = 0, 0
local total = math.max(redis.call('ZCARD', KEYS[1]) + passed, 1)
local n
n, wait = allowed(total, now)
if wait > 0 or (n > 0 and n < total and #limits.rates > 0) then limit = 1 elseif n < 1 then limit = 2 end
if n > 0 then wait = 0 end

local state, place, meta, ahead, above = 0, '', '', 0, 0
if id ~= '' then
  meta = redis.call('HGET', KEYS[4], id) or ''
  for set = 1, 3 do
    local s = redis.call('ZSCORE', KEYS[set], id)
    if s then state, place = set, fmt(tonumber(s)) end
  end
  if state == 1 then
    local s = tonumber(place)
    ahead = redis.call('ZRANK', KEYS[1], id)
    local lane = s >= RETRY and RETRY or 0
    above = redis.call('ZCOUNT', KEYS[1], fmt(lane), '(' .. fmt(lane + math.floor(s % RETRY / P42) * P42))
  end
end
return {
  fmt(now), redis.call('ZCARD', KEYS[1]) + passed, redis.call('ZCARD', KEYS[2]) - passed, redis.call('ZCARD', KEYS[3]),
  spilled, whole and 1 or 0, fmt(oldest), fmt(head(3)), fmt(till), limit, wait,
  parked, blocked, attempted, fmt(first), state, place, meta, ahead, above,
}
