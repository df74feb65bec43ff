-- park.lua: set leased jobs aside that must wait for another job.
--
-- ARGV[2]    window
-- ARGV[3..]  1..500 times: message ID, token, delay ms, buckets that count the lease (see
--            grant.lua)
--
-- Returns for each: 0 lease lost, 1 delayed, 2 ready, 3 removed. No attempt is charged,
-- and the rates do not count it.
--
-- A parked job waits in delayed, with its old ready time in the meta value, which no
-- other delayed job has. unpark.lua makes it ready at its old place; its due time is
-- the fail-safe. A job that unpark.lua named while it was leased (ready time 0) is
-- ready at once. While delayed holds three windows, the job is removed: unpark.lua
-- adds it again. So parked jobs alone never make delayed_is_full of grant.lua true.
-- Replay: harmless, returns 0. Removes before it adds. Cost: O(k log n).
local cap, n = int(ARGV[2], 1, 2147483647), (#ARGV - 2) / 4
if not cap or not int(n, 1, 500) then return bad('park') end
local ids, tokens, delays, counted = {}, {}, {}, {}
for i = 1, n do
  ids[i], tokens[i], delays[i] = ARGV[4 * i - 1], ARGV[4 * i], int(ARGV[4 * i + 1], 1, 1099511627776)
  counted[i] = ARGV[4 * i + 2]
  if #ids[i] ~= 12 or not delays[i] then return bad('lease') end
end
local now = clock()
local room = 3 * cap - redis.call('ZCARD', KEYS[2])
local out, gone, ready, later, values, plain, moved = {}, {}, {}, {}, {}, {}, {}
for i, meta in ipairs(leased(ids, tokens)) do
  local id = ids[i]
  out[i] = 0
  if meta and not moved[id] then
    local priority, attempts, flags, _, since = unpack_meta(meta, 0)
    attempts = math.max(attempts - 1, 0)
    moved[id] = true
    gone[#gone + 1] = id
    if since == '0' then
      out[i] = 2
      ready[#ready + 1] = score(priority, attempts, now)
      ready[#ready + 1] = id
      if attempts == 0 and flags == 0 then
        plain[#plain + 1] = id
      else
        values[#values + 1] = id
        values[#values + 1] = pack(priority, attempts, flags, '', '')
      end
    elseif room > 0 then
      out[i] = 1
      room = room - 1
      later[#later + 1] = fmt(now + delays[i])
      later[#later + 1] = id
      values[#values + 1] = id
      values[#values + 1] = pack(priority, attempts, flags, '', since ~= '' and since or fmt(now))
    else
      out[i] = 3
      plain[#plain + 1] = id
    end
  end
end
if #gone > 0 then
  redis.call('ZREM', KEYS[3], unpack(gone))
  if #ready > 0 then redis.call('ZADD', KEYS[1], unpack(ready)) end
  if #later > 0 then redis.call('ZADD', KEYS[2], unpack(later)) end
  if #plain > 0 then redis.call('HDEL', KEYS[4], unpack(plain)) end
  if #values > 0 then redis.call('HSET', KEYS[4], unpack(values)) end
  for i = 1, n do
    if out[i] > 0 and counted[i] ~= '' then refund(counted[i]) end
  end
end
return out
