-- restore_leases.lua: write leases that Redis has lost again.
--
-- ARGV[2]    lease ms
-- ARGV[3..]  1..500 times: message ID, token, priority, attempt of the lease; behind it may
--            stand |name;version of the worker that has it
--
-- Returns for each 1 if the caller has the lease, else 0: the job is leased with
-- another token, or it waits and that attempt, or a later one, is already charged.
--
-- A job that is leased with the token stays unchanged. An unknown job is leased with
-- the old token and attempt, and so is a job that waits with fewer attempts because
-- the scan of the store added it. Both are flagged, because Redis cannot tell whether
-- the job was delivered. A token still proves one lease only, since it is the same
-- lease. The second of two equal IDs in a call gets 0.
-- Replay: harmless. Removes before it adds, as extend.lua. Cost: O(k log n).
local lease, n = int(ARGV[2], 1, 1099511627776), (#ARGV - 2) / 4
if not lease or not int(n, 1, 500) then return bad('restore_leases') end
local ids, tokens, priorities, attempts, workers = {}, {}, {}, {}, {}
for i = 1, n do
  local a = 4 * i
  ids[i], tokens[i] = ARGV[a - 1], ARGV[a]
  priorities[i], attempts[i], workers[i] = int(ARGV[a + 1], 0, 1023), int(ARGV[a + 2], 1, 2147483647), ''
  if not attempts[i] then
    local attempt, name = string.match(ARGV[a + 2], '^(%d+)(|.+)$')
    attempts[i], workers[i] = int(attempt or '', 1, 2147483647), name
  end
  if #ids[i] ~= 12 or #tokens[i] < 1 or string.find(tokens[i], '|', 1, true) or not priorities[i] or not attempts[i] then
    return bad('lease')
  end
end
local now = clock()
local metas = redis.call('HMGET', KEYS[4], unpack(ids))
local ready = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local delayed = redis.call('ZMSCORE', KEYS[2], unpack(ids))
local leased = redis.call('ZMSCORE', KEYS[3], unpack(ids))
local deadline = fmt(now + lease)
local out, seen, adds, values, gone, unknown = {}, {}, {}, {}, {{}, {}}, {}
for i, id in ipairs(ids) do
  local _, before, flags, token = unpack_meta(metas[i], 0)
  out[i] = 0
  if leased[i] and not seen[id] then
    if token == tokens[i] then out[i] = 1 end
  elseif before < attempts[i] and not seen[id] then
    out[i] = 1
    local since = now
    if ready[i] then
      since = tonumber(ready[i]) % P42
      gone[1][#gone[1] + 1] = id
    elseif delayed[i] then
      gone[2][#gone[2] + 1] = id
    else
      unknown[#unknown + 1] = id
    end
    adds[#adds + 1] = deadline
    adds[#adds + 1] = id
    values[#values + 1] = id
    values[#values + 1] = pack(priorities[i], attempts[i], with_flag(flags, VERIFY), tokens[i], fmt(since)) .. workers[i]
  end
  seen[id] = true
end
if #adds > 0 then
  redis.call('ZREM', KEYS[3], '') -- removes nothing; see extend.lua
  if #gone[1] > 0 then redis.call('ZREM', KEYS[1], unpack(gone[1])) end
  if #gone[2] > 0 then redis.call('ZREM', KEYS[2], unpack(gone[2])) end
  redis.call('ZADD', KEYS[3], unpack(adds))
  redis.call('HSET', KEYS[4], unpack(values))
  bring(unknown)
end
return out
