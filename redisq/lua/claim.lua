-- claim.lua: lease the first ready jobs.
--
-- ARGV[2]  most jobs to lease: 0..500 (0 only promotes and counts)
-- ARGV[3]  lease ms
-- ARGV[4]  window
-- ARGV[5]  slots of the caller, 0: it has no bound
-- ARGV[6]  slots that retries have
-- ARGV[7]  worker|name;version: who gets the leases; may be absent
-- last     limits, may be absent; see grant.lua
--
-- Returns {ready left, highest spilled priority, -1 none, -2 none that is known (no scan
-- of the store has ended since the state began), next due ms, first
-- fence, buckets that count the leases, the limit that kept a ready job back (0 none,
-- 1 a rate, 2 the concurrency), retries among the ready left, then for each job:
-- message ID, (attempt * 4 + flags) * 1024 + priority}.
-- The tokens are <epoch>.<fence>; the fences count up from the first. If a rate kept a
-- job back, next due is the time until it allows the next lease.
--
-- Promotes due jobs first. grant.lua has the rule of how many jobs may be leased. While
-- first attempts are ready, retries get their share of the leases, counted by the
-- fences, and of the slots, but at least one; else three quarters of the slots, so that
-- a first attempt finds one free. At a share of 100 the order alone decides.
-- Invariant: a job that leaves ready is leased with a token and charged an attempt
-- in the same call. The removal may empty ready, so ready is not touched after it
-- (see extend.lua). Cost: O(k log n).
local n, lease, cap = int(ARGV[2], 0, 500), int(ARGV[3], 1, 1099511627776), int(ARGV[4], 1, 2147483647)
local worker = ''
if #ARGV == 7 and string.sub(ARGV[7], 1, 7) == 'worker|' then
  worker = string.sub(ARGV[7], 7)
  ARGV[7] = nil
end
if not n or not lease or not cap or #ARGV ~= 6 then return bad('claim') end
local slots, busy = int(ARGV[5], 0, 2147483647), int(ARGV[6], 0, 2147483647)
if not slots or not busy then return bad('claim') end
local now = clock()
promote(now)
local popped, removed = {}, false
local total = redis.call('ZCARD', KEYS[1])
local asked, wait = n, 0
n, wait = allowed(n, now)

-- first lists the first k ready jobs between two scores.
local function first(k, from, to)
  if k < 1 then return {} end
  return redis.call('ZRANGEBYSCORE', KEYS[1], from, to, 'WITHSCORES', 'LIMIT', 0, fmt(k))
end
local firsts, retries = total, 0
if n > 0 and total > 0 then
  firsts = first_ready(total)
  retries = total - firsts
  local full = delayed_is_full(retries, cap)
  if full then firsts = 0 end
  if spilled >= 0 and firsts > 0 then firsts = redis.call('ZCOUNT', KEYS[1], '-inf', reach(0)) end
  if retries == 0 and spilled < 0 then
    if firsts > 0 then popped, removed = redis.call('ZPOPMIN', KEYS[1], fmt(n)), true end
  elseif share == 100 then
    local last = full and '+inf' or reach(RETRY)
    popped = merged(first(math.min(n, firsts), '-inf', reach(0)), first(n, fmt(RETRY), last), n)
  else
    local k, m = split(n, firsts, retries, slots, busy)
    popped = first(k, '-inf', '(' .. fmt(RETRY))
    for _, v in ipairs(first(m, fmt(RETRY), '+inf')) do popped[#popped + 1] = v end
  end
  for i = 2, #popped, 2 do
    if tonumber(popped[i]) >= RETRY then retries = retries - 1 end
  end
end
local out = {0, (spilled < 0 and not whole) and -2 or spilled, 0, 0, '', 0, retries}
if #popped > 0 then
  local ids = {}
  for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
  if not removed then redis.call('ZREM', KEYS[1], unpack(ids)) end
  local metas = redis.call('HMGET', KEYS[4], unpack(ids))
  local deadline = fmt(now + lease)
  local leases, before, behind, plain = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local s = tonumber(popped[2 * i]) % RETRY
    local ready = s % P42
    local priority = 1023 - (s - ready) / P42
    leases[2 * i - 1] = deadline
    leases[2 * i] = id
    out[2 * i + 6] = id
    -- Lua converts numbers below 1e14 exactly, and these are far below.
    -- Plain jobs of one priority share the first part of their meta value.
    behind[i] = '|' .. ready .. worker
    if metas[i] then
      local _, attempts, flags = unpack_meta(metas[i], priority)
      before[i] = priority .. '|' .. (attempts + 1) .. '|' .. flags .. '|' .. epoch .. '.'
      out[2 * i + 7] = ((attempts + 1) * 4 + flags) * 1024 + priority
    else
      local head = plain[priority]
      if not head then
        head = priority .. '|1|0|' .. epoch .. '.'
        plain[priority] = head
      end
      before[i] = head
      out[2 * i + 7] = 4096 + priority
    end
  end
  out[4], out[5] = grant(#ids, ids, before, behind, leases, now)
end
out[1] = total - #popped / 2
out[3] = next_due(now)
if n < asked and out[1] > 0 then
  out[6] = wait > 0 and 1 or 2
  if wait > 0 then out[3] = wait end
end
return out
