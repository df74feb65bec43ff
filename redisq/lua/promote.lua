-- promote.lua: part of the scripts that promote due jobs. Follows the prelude.
--
-- promote moves up to 128 due jobs from delayed to ready, with the due time in their
-- score; the next call moves the rest. A job with no attempt and no flag loses its
-- meta field. Cost: one range when nothing is due.
local function promote(now)
  local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if not head[1] or tonumber(head[2]) > now then return end
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', fmt(now), 'WITHSCORES', 'LIMIT', 0, 128)
  local ids = {}
  for i = 1, #due, 2 do ids[#ids + 1] = due[i] end
  local metas = redis.call('HMGET', KEYS[4], unpack(ids))
  local adds, plain = {}, {}
  for i, id in ipairs(ids) do
    local priority, attempts, flags = unpack_meta(metas[i], 0)
    adds[#adds + 1] = score(priority, attempts, tonumber(due[2 * i]))
    adds[#adds + 1] = id
    if attempts == 0 and flags == 0 then plain[#plain + 1] = id end
  end
  redis.call('ZREM', KEYS[2], unpack(ids))
  redis.call('ZADD', KEYS[1], unpack(adds))
  if #plain > 0 then redis.call('HDEL', KEYS[4], unpack(plain)) end
end

