-- enqueue.lua: add jobs to the queue as far as the window has room.
--
-- ARGV[2]    window: ready jobs kept in Redis
-- ARGV[3]    source: 0 fresh, 1 repeated, 2 recovered
-- ARGV[4..]  1..500 times: message ID, priority, delay ms, attempts before
--
-- Returns {added, known, spilled, highest spilled priority or -1, position of
-- the first spilled job or -1}.
--
-- A fresh job with an ID newer than b (see brought.lua) is looked up in ready only,
-- and in delayed too if it has a delay. Any other job is looked up in every set.
-- Known jobs stay unchanged. A delayed job is always added.
--
-- A ready job is added in these cases and spilled in all others:
--   fresh or repeated: its priority is above the highest spilled one, and its lane
--                      holds less than a window; or the lane holds less than two
--                      windows and the job's priority is above the lowest in it
--   recovered:         its lane holds less than a window (the job may be a spilled one);
--                      or the job's priority is above the lowest in the lane and fewer
--                      than a window of jobs in it have its priority or a higher one,
--                      so less urgent jobs never keep it out
-- A lane is the ready jobs with attempts, or those without: retries keep no other out.
-- A recovered job, or one without attempts, is ready since the time in its ID: jobs of one
-- priority are then in the order of their messages, whichever way they came in. A repeated
-- one with attempts is ready since now.
-- Invariant: a job is in one set. Cost: O(k log n).
local cap = int(ARGV[2], 1, 2147483647)
local source = int(ARGV[3], 0, 2)
local n = (#ARGV - 3) / 4
if not cap or not source or not int(n, 1, 500) then return bad('enqueue') end
local ids, priorities, delays, attempts = {}, {}, {}, {}
local careful, delayed = source > 0, false
for i = 1, n do
  local a = 4 * i
  local id, p = ARGV[a], int(ARGV[a + 1], 0, 1023)
  local w, t = int(ARGV[a + 2], 0, 1099511627776), int(ARGV[a + 3], 0, 2147483647)
  if #id ~= 12 or not p or not w or not t then return bad('job') end
  ids[i], priorities[i], delays[i], attempts[i] = id, p, w, t
  if w > 0 then delayed = true end
  if made(id) <= brought then careful = true end
end
local now = clock()

local seen = {}
for set = 1, 3 do
  if set == 1 or careful or (set == 2 and delayed) then
    for i, s in ipairs(redis.call('ZMSCORE', KEYS[set], unpack(ids))) do
      if s then seen[ids[i]] = true end
    end
  end
end
local function flags_of(id)
  if source == 2 then return VERIFY + RECOVERED end
  if source == 1 or made(id) <= brought then return VERIFY end
  return 0
end

-- A lane has: from, the score of its begin; before and total, its jobs before this call
-- and now; lowest, the lowest priority that this call adds (those jobs are not in the set
-- yet); worst, the lowest priority in it, read only when the window is full; base,
-- priority -> jobs in it of that priority or higher before this call; placed, priority ->
-- jobs of that priority that this call adds.
local function lane_from(from)
  local n = redis.call('ZCOUNT', KEYS[1], fmt(from), '(' .. fmt(from + RETRY))
  return {from = from, before = n, total = n, lowest = 1023, base = {}, placed = {}}
end
local lanes = {}
local function lane_of(t)
  local from = t > 0 and RETRY or 0
  if not lanes[from] then lanes[from] = lane_from(from) end
  return lanes[from]
end
local function before_worst(l, p)
  if not l.worst then
    -- The lane of retries is the end of the set.
    local last = l.from > 0 and -1 or l.before - 1
    local tail = l.before > 0 and redis.call('ZRANGE', KEYS[1], last, last, 'WITHSCORES') or {}
    l.worst = tail[1] and priority_of(tonumber(tail[2])) or 1023
  end
  return p > math.min(l.worst, l.lowest)
end
local function ahead(l, p)
  if not l.base[p] then
    l.base[p] = redis.call('ZCOUNT', KEYS[1], fmt(l.from), '(' .. fmt(l.from + (1024 - p) * P42))
  end
  local n = l.base[p]
  for q, k in pairs(l.placed) do
    if q >= p then n = n + k end
  end
  return n
end
local function admitted(l, p)
  if source == 2 then return l.total < cap or (before_worst(l, p) and ahead(l, p) < cap) end
  if p <= spilled then return false end
  return l.total < cap or (l.total < 2 * cap and before_worst(l, p))
end

local before = spilled
local added, known, out, first = 0, 0, 0, -1
local ready, later, metas = {}, {}, {}
for i = 1, n do
  local id, p, flags = ids[i], priorities[i], flags_of(ids[i])
  if seen[id] then
    known = known + 1
  elseif delays[i] > 0 then
    seen[id] = true
    added = added + 1
    later[#later + 1] = fmt(now + delays[i])
    later[#later + 1] = id
    metas[#metas + 1] = id
    metas[#metas + 1] = pack(p, attempts[i], flags, '', '')
  elseif admitted(lane_of(attempts[i]), p) then
    local l = lane_of(attempts[i])
    seen[id] = true
    added = added + 1
    l.total = l.total + 1
    l.lowest = math.min(l.lowest, p)
    l.placed[p] = (l.placed[p] or 0) + 1
    local since = now
    if source == 2 or attempts[i] == 0 then since = math.min(now, made(id)) end
    ready[#ready + 1] = score(p, attempts[i], since)
    ready[#ready + 1] = id
    if attempts[i] > 0 or flags > 0 then
      metas[#metas + 1] = id
      metas[#metas + 1] = pack(p, attempts[i], flags, '', '')
    end
  else
    seen[id] = true -- if the call names it again, it counts as known
    out = out + 1
    if p > spilled then spilled = p end
    if first < 0 then first = i - 1 end
  end
end
if #ready > 0 then redis.call('ZADD', KEYS[1], unpack(ready)) end
if #later > 0 then redis.call('ZADD', KEYS[2], unpack(later)) end
if #metas > 0 then redis.call('HSET', KEYS[4], unpack(metas)) end
if source > 0 then bring(ids) end
if spilled ~= before then redis.call('HSET', KEYS[5], 'sp', fmt(spilled)) end
-- A refill clears sp only when ss has not changed, so the spills of others count.
-- The scan that offers recovered jobs knows its own spills.
if out > 0 and source ~= 2 then redis.call('HINCRBY', KEYS[5], 'ss', 1) end
return {added, known, out, spilled, first}
