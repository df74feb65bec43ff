-- nack.lua: end leases; the jobs wait for another attempt.
--
-- ARGV[2]    1: the attempt stays charged, 0: the job was given back, and it was no attempt
-- ARGV[3..]  1..500 times: message ID, token, delay ms (0: ready at once)
--
-- Returns for each 1 ended, 0 lease lost. A job that was given back is flagged, because the
-- store has a row for it, which its end removes.
-- Replay: harmless, returns 0. Removes before it adds. Cost: O(k log n).
local charged, n = int(ARGV[2], 0, 1), (#ARGV - 2) / 3
if not charged or not int(n, 1, 500) then return bad('nack') end
local ids, tokens, delays = {}, {}, {}
for i = 1, n do
  ids[i], tokens[i], delays[i] = ARGV[3 * i], ARGV[3 * i + 1], int(ARGV[3 * i + 2], 0, 1099511627776)
  if #ids[i] ~= 12 or not delays[i] then return bad('lease') end
end
local now = clock()
local out, gone, ready, later, values, moved = {}, {}, {}, {}, {}, {}
for i, meta in ipairs(leased(ids, tokens)) do
  local id = ids[i]
  out[i] = 0
  if meta and not moved[id] then
    local priority, attempts, flags = unpack_meta(meta, 0)
    if charged == 0 then attempts, flags = math.max(attempts - 1, 0), with_flag(flags, VERIFY) end
    out[i], moved[id] = 1, true
    gone[#gone + 1] = id
    if delays[i] > 0 then
      later[#later + 1] = fmt(now + delays[i])
      later[#later + 1] = id
    else
      ready[#ready + 1] = score(priority, attempts, now)
      ready[#ready + 1] = id
    end
    values[#values + 1] = id
    values[#values + 1] = pack(priority, attempts, flags, '', '')
  end
end
if #gone > 0 then
  redis.call('ZREM', KEYS[3], unpack(gone))
  if #ready > 0 then redis.call('ZADD', KEYS[1], unpack(ready)) end
  if #later > 0 then redis.call('ZADD', KEYS[2], unpack(later)) end
  redis.call('HSET', KEYS[4], unpack(values))
end
return out
