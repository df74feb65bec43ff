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
--   fresh or repeated: its priority is above the highest spilled one, and
--                      ready holds less than a window; or ready holds less than
--                      two windows and the job's priority is above the lowest in ready
--   recovered:         ready holds less than a window (the job may be a spilled one);
--                      or the job's priority is above the lowest in ready and fewer
--                      than a window of ready jobs have its priority or a higher one,
--                      so less urgent jobs never keep it out
-- A recovered job is ready since the time in its ID, others since now.
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
local total = redis.call('ZCARD', KEYS[1])

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

local lowest = 1023 -- lowest priority that this call adds; those jobs are not in the set yet
local worst -- lowest priority in ready; read only when the window is full
local function before_worst(p)
  if not worst then
    local tail = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    worst = tail[1] and priority_of(tonumber(tail[2])) or 1023
  end
  return p > math.min(worst, lowest)
end
-- base: priority -> ready jobs of that priority or higher, before this call.
-- placed: priority -> jobs of that priority that this call adds.
local base, placed = {}, {}
local function ahead(p)
  if not base[p] then base[p] = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. fmt((1024 - p) * P42)) end
  local n = base[p]
  for q, k in pairs(placed) do
    if q >= p then n = n + k end
  end
  return n
end
local function admitted(p)
  if source == 2 then return total < cap or (before_worst(p) and ahead(p) < cap) end
  if p <= spilled then return false end
  return total < cap or (total < 2 * cap and before_worst(p))
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
  elseif admitted(p) then
    seen[id] = true
    added = added + 1
    total = total + 1
    lowest = math.min(lowest, p)
    placed[p] = (placed[p] or 0) + 1
    local since = now
    if source == 2 then since = math.min(now, made(id)) end
    ready[#ready + 1] = score(p, since)
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
