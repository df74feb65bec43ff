-- brought.lua: stands behind the prelude of scripts that bring jobs by another way
-- than the fresh offer of the broker that published them.
--
-- That broker can be stopped on the way to its offer until others have brought the
-- job, and perhaps delivered it. A fresh offer that is not newer than everything
-- brought is therefore looked up in every set, and its jobs are flagged.

-- made is the time in a message ID, Unix ms.
local function made(id)
  local b1, b2, b3, b4, b5, b6 = string.byte(id, 1, 6)
  return ((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6
end

-- bring notes that jobs came.
local function bring(ids)
  local newest = brought
  for _, id in ipairs(ids) do newest = math.max(newest, made(id)) end
  if newest > brought then redis.call('HSET', KEYS[5], 'b', fmt(newest)) end
end
