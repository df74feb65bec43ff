-- reclaim.lua: end leases that are past their deadline; promote due jobs.
--
-- ARGV[2]  most leases to end: 1..500
-- ARGV[3]  attempts after which a job is exhausted; 0: never
-- ARGV[4]  ms that an exhausted job stays leased to the caller
--
-- If the clock of Redis went back by more than 5 s, the script deletes the consumer's
-- keys and returns {'STALE', ''}, as the prelude does for lost state. Otherwise every
-- delayed job and every lease would wait longer by that step. The rebuilt state has
-- times of the new clock. Smaller steps are waited out. The script writes the time
-- about once a second.
--
-- Returns {next due ms, 1 when the consumer has no job at all else 0, number of
-- returned jobs, first fence, then for each returned job: message ID, priority, attempts, worker, and
-- for each exhausted job: message ID, priority, attempts, flags, worker}. The worker is name;version
-- of the one that had the lease, or ''. Tokens as in claim.lua.
--
-- A returned job is ready since now and flagged, because its worker may have delivered
-- it. An exhausted job gets a new token and deadline: only the caller handles it, and
-- if the caller dies, a later reclaim returns it again.
-- Invariant: one call ends a lease. The script removes before it adds. Exhausted jobs
-- stay in leased, so that the script never empties leased and adds to it afterwards
-- (see extend.lua). Cost: O(k log n).
local limit, most = int(ARGV[2], 1, 500), int(ARGV[3], 0, 2147483647)
local grace = int(ARGV[4], 1, 1099511627776)
if #ARGV ~= 4 or not limit or not most or not grace then return bad('reclaim') end
local now = clock()
local seen = tonumber(redis.call('HGET', KEYS[5], 't') or '0')
if now < seen - 5000 then
  redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
  return {'STALE', ''}
end
-- A Redis at its memory limit refuses this write; the rest does not depend on it.
if now >= seen + 1000 then redis.pcall('HSET', KEYS[5], 't', fmt(now)) end
local out, tail = {0, 0, 0, 0}, {}
local ids = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', fmt(now), 'LIMIT', 0, fmt(limit))
if #ids > 0 then
  local metas = redis.call('HMGET', KEYS[4], unpack(ids))
  local ready, again, values, gone = {}, {}, {}, {''}
  for i, id in ipairs(ids) do
    local _, attempts = unpack_meta(metas[i], 0)
    if most == 0 or attempts < most then gone[#gone + 1] = id end
  end
  redis.call('ZREM', KEYS[3], unpack(gone))
  local fence = redis.call('HINCRBY', KEYS[5], 'f', #ids) - #ids
  out[4] = fence + 1
  for i, id in ipairs(ids) do
    local priority, attempts, flags, _, since, worker = unpack_meta(metas[i], 0)
    local who = string.sub(worker, 2)
    flags = with_flag(flags, VERIFY)
    values[2 * i - 1] = id
    if most > 0 and attempts >= most then
      fence = fence + 1
      again[#again + 1] = fmt(now + grace)
      again[#again + 1] = id
      values[2 * i] = pack(priority, attempts, flags, epoch .. '.' .. fmt(fence), since) .. worker
      local t = #tail
      tail[t + 1], tail[t + 2], tail[t + 3], tail[t + 4], tail[t + 5] = id, priority, attempts, flags, who
    else
      ready[#ready + 1] = score(priority, attempts, now)
      ready[#ready + 1] = id
      values[2 * i] = pack(priority, attempts, flags, '', '')
      local t = #out
      out[t + 1], out[t + 2], out[t + 3], out[t + 4] = id, priority, attempts, who
    end
  end
  out[3] = #ready / 2
  if #ready > 0 then redis.call('ZADD', KEYS[1], unpack(ready)) end
  if #again > 0 then redis.call('ZADD', KEYS[3], unpack(again)) end
  redis.call('HSET', KEYS[4], unpack(values))
  for i = 1, #tail do out[#out + 1] = tail[i] end
end
promote(now)
out[1] = next_due(now)
if out[1] == 0 and redis.call('EXISTS', KEYS[1]) == 0 then out[2] = 1 end
return out
