-- brought.lua: part of the scripts that can add a job before its publishing broker
-- does. Follows the prelude.
--
-- A job enters Redis in one of two ways. The fresh offer comes from the broker that
-- published the message. Any other call "brings" the job: the scan of the store, a
-- claim by ID, a repeated offer, restored leases. The publishing broker may stall
-- before its fresh offer, while another broker brings the job and even delivers it.
-- The control field b therefore keeps the newest time in the ID of a brought job.
-- A fresh offer with an ID up to that time is looked up in every set and flagged.

-- made returns the time in a message ID, Unix ms.
local function made(id)
  local b1, b2, b3, b4, b5, b6 = string.byte(id, 1, 6)
  return ((((b1 * 256 + b2) * 256 + b3) * 256 + b4) * 256 + b5) * 256 + b6
end

-- bring records in b that these jobs were brought.
local function bring(ids)
  local newest = brought
  for _, id in ipairs(ids) do newest = math.max(newest, made(id)) end
  if newest > brought then redis.call('HSET', KEYS[5], 'b', fmt(newest)) end
end
