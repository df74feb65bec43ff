-- unpark.lua: make jobs ready whose wait for another job is over.
--
-- ARGV[2..]  1..500 times: message ID, priority, used when the job is unknown
--
-- Returns {number of jobs that are ready because of this call}.
--
-- A parked job becomes ready at its old place. An unknown job is added, flagged: park.lua
-- has removed it, or it was spilled. A leased job gets ready time 0: if its holder parks
-- it, because it has asked the store too early, the job is ready at once. A ready job,
-- and a job that waits for another attempt, stay unchanged.
-- Replay: harmless. Removes before it adds. Cost: O(k log n).
local n = (#ARGV - 1) / 2
if not int(n, 1, 500) then return bad('unpark') end
local ids, priorities = {}, {}
for i = 1, n do
  ids[i], priorities[i] = ARGV[2 * i], int(ARGV[2 * i + 1], 0, 1023)
  if #ids[i] ~= 12 or not priorities[i] then return bad('unpark') end
end
local now = clock()
local metas = redis.call('HMGET', KEYS[4], unpack(ids))
local ready = redis.call('ZMSCORE', KEYS[1], unpack(ids))
local delayed = redis.call('ZMSCORE', KEYS[2], unpack(ids))
local leased = redis.call('ZMSCORE', KEYS[3], unpack(ids))
local gone, adds, values, plain, unknown, seen = {}, {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local priority, attempts, flags, token, since, worker = unpack_meta(metas[i], priorities[i])
  if seen[id] or ready[i] then
    -- named twice, or ready
  elseif leased[i] then
    values[#values + 1] = id
    values[#values + 1] = pack(priority, attempts, flags, token, '0') .. worker
  elseif not delayed[i] then
    unknown[#unknown + 1] = id
    adds[#adds + 1] = score(priority, 0, math.min(now, made(id)))
    adds[#adds + 1] = id
    values[#values + 1] = id
    values[#values + 1] = pack(priority, 0, VERIFY, '', '')
  elseif since ~= '' then
    gone[#gone + 1] = id
    adds[#adds + 1] = score(priority, attempts, tonumber(since))
    adds[#adds + 1] = id
    if attempts == 0 and flags == 0 then
      plain[#plain + 1] = id
    else
      values[#values + 1] = id
      values[#values + 1] = pack(priority, attempts, flags, '', '')
    end
  end
  seen[id] = true
end
if #gone > 0 then redis.call('ZREM', KEYS[2], unpack(gone)) end
if #adds > 0 then redis.call('ZADD', KEYS[1], unpack(adds)) end
if #plain > 0 then redis.call('HDEL', KEYS[4], unpack(plain)) end
if #values > 0 then redis.call('HSET', KEYS[4], unpack(values)) end
bring(unknown)
return {#adds / 2}
