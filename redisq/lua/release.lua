-- release.lua: undo claims of jobs that were not sent.
--
-- ARGV[2..]  1..500 times: message ID, token, buckets that count the lease (see grant.lua)
--
-- Returns for each 1 ready again, 0 lease lost. A released job gets its old place in
-- ready. Its attempt is not charged and the rates do not count it. A job that is plain
-- again loses its meta field.
-- Replay: harmless, returns 0. Removes before it adds. Cost: O(k log n).
local n = (#ARGV - 1) / 3
if not int(n, 1, 500) then return bad('release') end
local ids, tokens, counted = {}, {}, {}
for i = 1, n do
  ids[i], tokens[i], counted[i] = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if #ids[i] ~= 12 then return bad('lease') end
end
local now = clock()
local out, gone, ready, values, plain, moved = {}, {}, {}, {}, {}, {}
for i, meta in ipairs(leased(ids, tokens)) do
  local id = ids[i]
  out[i] = 0
  if meta and not moved[id] then
    local priority, attempts, flags, _, since = unpack_meta(meta, 0)
    attempts = math.max(attempts - 1, 0)
    out[i], moved[id] = 1, true
    gone[#gone + 1] = id
    ready[#ready + 1] = score(priority, attempts, tonumber(since) or now)
    ready[#ready + 1] = id
    if attempts == 0 and flags == 0 then
      plain[#plain + 1] = id
    else
      values[#values + 1] = id
      values[#values + 1] = pack(priority, attempts, flags, '', '')
    end
  end
end
if #gone > 0 then
  redis.call('ZREM', KEYS[3], unpack(gone))
  redis.call('ZADD', KEYS[1], unpack(ready))
  if #plain > 0 then redis.call('HDEL', KEYS[4], unpack(plain)) end
  if #values > 0 then redis.call('HSET', KEYS[4], unpack(values)) end
  for i = 1, n do
    if out[i] == 1 and counted[i] ~= '' then refund(counted[i]) end
  end
end
return out
