-- claim_each.lua: lease jobs by ID, in the order of the arguments.
--
-- ARGV[2..]  1..500 groups of five:
--            message ID
--            priority, used when the job is unknown
--            attempts before, used when the job is unknown
--            lease ms
--            1: lease the job even if it is unknown, 0: only a known job; behind it
--            may stand |name;version of the worker that gets the lease
-- last       limits, may be absent; see grant.lua
--
-- Returns for each group: 1 if this group leased the job, 2 if the limits refused the
-- lease, else 0; state before (0 unknown, 1 ready, 2 delayed, 3 leased), score before
-- or '', meta before or '', fence, priority, attempt, flags, buckets that count the
-- lease. The fence is the ms until a rate allows a lease (0: unknown) where the limits
-- refused it. The other four are 0 or '' where the job was not leased.
--
-- A leased job stays unchanged, even past its deadline: only reclaim ends a lease,
-- so each lease ends once. An unknown job is flagged, because Redis cannot tell
-- whether it was delivered. Where two groups name one job, the second finds it
-- leased by the first.
-- Invariant: of racing groups and calls for one job, one gets the lease. The script
-- reads everything before its first write. Cost: O(k log n).
if #ARGV < 6 or #ARGV > 2501 or #ARGV % 5 ~= 1 then return bad('claim_each') end
local ids, wishes = {}, {}
for i = 2, #ARGV, 5 do
  local priority, attempts = int(ARGV[i + 1], 0, 1023), int(ARGV[i + 2], 0, 2147483647)
  local lease, insert, worker = int(ARGV[i + 3], 1, 1099511627776), int(ARGV[i + 4], 0, 1), ''
  if not insert then
    local flag, name = string.match(ARGV[i + 4], '^([01])(|.+)$')
    insert, worker = int(flag or '', 0, 1), name
  end
  if #ARGV[i] ~= 12 or not priority or not attempts or not lease or not insert then
    return bad('claim_each')
  end
  ids[#ids + 1] = ARGV[i]
  wishes[#wishes + 1] = {priority, attempts, lease, insert, worker}
end

local metas = redis.call('HMGET', KEYS[4], unpack(ids))
local scores = {}
for set = 1, 3 do scores[set] = redis.call('ZMSCORE', KEYS[set], unpack(ids)) end
local now = clock()
local fence = tonumber(redis.call('HGET', KEYS[5], 'f') or '0')
local out, taken = {}, {} -- taken: jobs leased by this call, ID -> {deadline, meta}
local gone, unknown = {{}, {}}, {}
local named, before_fence, behind_fence, leases = {}, {}, {}, {} -- arguments of grant
hold, behind = nil, false -- a hold is for pushes; workers and the reaper claim by ID
local most, wait = allowed(#ids, now)
for i, id in ipairs(ids) do
  local priority, attempts, lease, insert, worker = unpack(wishes[i])
  local state, before, meta = 0, '', metas[i] or ''
  for set = 1, 3 do
    if state == 0 and scores[set][i] then state, before = set, tonumber(scores[set][i]) end
  end
  if taken[id] then state, before, meta = 3, taken[id][1], taken[id][2] end
  local at = #out
  out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 0, state, state > 0 and fmt(before) or '', meta
  out[at + 5], out[at + 6], out[at + 7], out[at + 8], out[at + 9] = 0, 0, 0, 0, ''
  if state < 3 and (state > 0 or insert == 1) and #named == most then
    out[at + 1], out[at + 5] = 2, wait
  elseif state < 3 and (state > 0 or insert == 1) then
    local flags, ready = VERIFY, now
    if state == 1 then
      priority, attempts, flags = unpack_meta(metas[i], priority_of(before))
      ready = before % P42
    elseif state == 2 then
      priority, attempts, flags = unpack_meta(metas[i], 0)
    end
    fence = fence + 1
    local from, k = gone[state] or unknown, #named + 1
    from[#from + 1] = id
    named[k], behind_fence[k] = id, '|' .. fmt(ready) .. worker
    before_fence[k] = fmt(priority) .. '|' .. fmt(attempts + 1) .. '|' .. fmt(flags) .. '|' .. epoch .. '.'
    leases[2 * k - 1], leases[2 * k] = fmt(now + lease), id
    taken[id] = {now + lease, before_fence[k] .. fmt(fence) .. behind_fence[k]}
    out[at + 1], out[at + 5], out[at + 6], out[at + 7], out[at + 8] = 1, fence, priority, attempts + 1, flags
  end
end
if #named > 0 then
  for set = 1, 2 do
    if #gone[set] > 0 then redis.call('ZREM', KEYS[set], unpack(gone[set])) end
  end
  local _, counted = grant(#named, named, before_fence, behind_fence, leases, now)
  for i = 1, #ids do
    if out[9 * i - 8] == 1 then out[9 * i] = counted end
  end
  bring(unknown)
end
return out
