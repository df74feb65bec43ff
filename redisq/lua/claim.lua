-- claim.lua: lease the first ready jobs.
--
-- ARGV[2]  most jobs to lease: 0..500 (0 only promotes and counts)
-- ARGV[3]  lease ms
-- ARGV[4]  window
--
-- Returns {ready left, highest spilled priority or -1, next due ms, first
-- fence, then for each job: message ID, (attempt * 4 + flags) * 1024 + priority}.
-- The tokens are <epoch>.<fence>; the fences count up from the first.
--
-- Promotes due jobs first. grant.lua has the rule of how many jobs may be leased.
-- Invariant: a job that leaves ready is leased with a token and charged an attempt
-- in the same call. The removal may empty ready, so ready is not touched after it
-- (see extend.lua). Cost: O(k log n).
local n, lease, cap = int(ARGV[2], 0, 500), int(ARGV[3], 1, 1099511627776), int(ARGV[4], 1, 2147483647)
if not n or not lease or not cap or #ARGV ~= 4 then return bad('claim') end
local now = clock()
promote(now)
local popped = {}
local total = redis.call('ZCARD', KEYS[1])
n = grantable(n, cap)
if n > 0 then
  if spilled < 0 then
    popped = redis.call('ZPOPMIN', KEYS[1], fmt(n))
  else
    popped = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', reach(), 'WITHSCORES', 'LIMIT', 0, fmt(n))
  end
end
local out = {0, spilled, 0, 0}
if #popped > 0 then
  local ids = {}
  for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
  if spilled >= 0 then redis.call('ZREM', KEYS[1], unpack(ids)) end
  local metas = redis.call('HMGET', KEYS[4], unpack(ids))
  local deadline = fmt(now + lease)
  local leases, before, behind, plain = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local s = tonumber(popped[2 * i])
    local ready = s % P42
    local priority = 1023 - (s - ready) / P42
    leases[2 * i - 1] = deadline
    leases[2 * i] = id
    out[2 * i + 3] = id
    -- Lua converts numbers below 1e14 exactly, and these are far below.
    -- Plain jobs of one priority share the first part of their meta value.
    behind[i] = '|' .. ready
    if metas[i] then
      local _, attempts, flags = unpack_meta(metas[i], priority)
      before[i] = priority .. '|' .. (attempts + 1) .. '|' .. flags .. '|' .. epoch .. '.'
      out[2 * i + 4] = ((attempts + 1) * 4 + flags) * 1024 + priority
    else
      local head = plain[priority]
      if not head then
        head = priority .. '|1|0|' .. epoch .. '.'
        plain[priority] = head
      end
      before[i] = head
      out[2 * i + 4] = 4096 + priority
    end
  end
  out[4] = grant(#ids, ids, before, behind, leases)
end
out[1] = total - #popped / 2
out[3] = next_due(now)
return out
