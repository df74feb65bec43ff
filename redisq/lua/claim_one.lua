-- claim_one.lua: lease one job that the caller names.
--
-- ARGV[2]  message ID
-- ARGV[3]  priority, used when the job is unknown
-- ARGV[4]  attempts before, used when the job is unknown
-- ARGV[5]  lease ms
-- ARGV[6]  1: lease it although it is unknown, 0: do not
--
-- Returns {1 leased by this call or 0, state before (0 unknown, 1 ready,
-- 2 delayed, 3 leased), score before or '', meta before or '', fence, priority,
-- attempt, flags}; the last four only mean something when it was leased.
--
-- A job leased already is left alone, also when its deadline has passed: only
-- reclaim ends a lease, so it is counted once. An unknown job is flagged: Redis
-- cannot tell whether it was delivered.
-- Invariant: of any number of racing calls one leases. Cost: O(log n).
local id = ARGV[2]
local priority, attempts = int(ARGV[3], 0, 1023), int(ARGV[4], 0, 2147483647)
local lease, insert = int(ARGV[5], 1, 1099511627776), int(ARGV[6], 0, 1)
if #ARGV ~= 6 or #id ~= 12 or not priority or not attempts or not lease or not insert then
  return bad('claim_one')
end
local meta = redis.call('HGET', KEYS[4], id)
local state, before = 0, false
for i = 1, 3 do
  before = redis.call('ZSCORE', KEYS[i], id)
  if before then
    state = i
    break
  end
end
if state == 3 or (state == 0 and insert == 0) then
  return {0, state, before and fmt(tonumber(before)) or '', meta or '', 0, 0, 0, 0}
end
local now = clock()
local flags, ready = VERIFY, now
if state == 1 then
  priority = priority_of(tonumber(before))
  priority, attempts, flags = unpack_meta(meta, priority)
  ready = tonumber(before) % P42
elseif state == 2 then
  priority, attempts, flags = unpack_meta(meta, 0)
end
if state > 0 then redis.call('ZREM', KEYS[state], id) end
redis.call('ZADD', KEYS[3], fmt(now + lease), id)
local fence = redis.call('HINCRBY', KEYS[5], 'f', 1)
redis.call('HSET', KEYS[4], id, pack(priority, attempts + 1, flags, epoch .. '.' .. fmt(fence), fmt(ready)))
return {1, state, before and fmt(tonumber(before)) or '', meta or '', fence, priority, attempts + 1, flags}
