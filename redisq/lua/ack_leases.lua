-- ack_leases.lua: remove jobs that are over, as far as the caller still holds them.
--
-- ARGV[2..]  1..500 times: message ID, token
--
-- Returns for each 1 removed, 0 lease lost. A dead job may have been redriven, and a job that
-- was redriven may have a new lease: only the holder of a lease removes its job here. A job
-- that waits is flagged instead, so that its next claim asks the store whether it is over.
-- Replay: harmless, returns 0. Cost: O(k log n).
local n = (#ARGV - 1) / 2
if not int(n, 1, 500) then return bad('ack') end
local ids, tokens = {}, {}
for i = 1, n do
  ids[i], tokens[i] = ARGV[2 * i], ARGV[2 * i + 1]
  if #ids[i] ~= 12 then return bad('lease') end
end
local out, gone, seen, flagged = {}, {}, {}, {}
for i, meta in ipairs(leased(ids, tokens)) do
  out[i] = 0
  if meta and not seen[ids[i]] then
    out[i], seen[ids[i]] = 1, true
    gone[#gone + 1] = ids[i]
  elseif not meta and not seen[ids[i]] then
    local ready = redis.call('ZMSCORE', KEYS[1], ids[i])[1]
    if ready or redis.call('ZMSCORE', KEYS[2], ids[i])[1] then
      local v = redis.call('HGET', KEYS[4], ids[i])
      local p, attempts, flags = unpack_meta(v, ready and priority_of(tonumber(ready)) or 0)
      flagged[#flagged + 1] = ids[i]
      flagged[#flagged + 1] = pack(p, attempts, with_flag(flags, VERIFY), '', '')
    end
  end
end
if #flagged > 0 then redis.call('HSET', KEYS[4], unpack(flagged)) end
if #gone > 0 then
  redis.call('ZREM', KEYS[3], unpack(gone))
  redis.call('HDEL', KEYS[4], unpack(gone))
end
return out
