-- prelude.lua: the first part of every script of a consumer.
--
-- KEYS[1]  ready    ZSET  message ID -> (1023 - priority) * 2^42 + ready ms, for a job
--                         with attempts 2^52 more: first attempts come before retries
-- KEYS[2]  delayed  ZSET  message ID -> due ms
-- KEYS[3]  leased   ZSET  message ID -> deadline ms
-- KEYS[4]  meta     HASH  message ID -> priority|attempts|flags|token|ready ms, for a lease of a
--                         worker that said its name |name;version more
-- KEYS[5]  control  HASH  e epoch, f last fence, sp highest spilled priority, ss spills,
--                         t time of the last reclaim or rebuild, ms, b newest time in
--                         the ID of a job that no fresh offer added, ms (brought.lua),
--                         w<end> and v<end> leases granted (grant.lua),
--                         u<end> leases of a replay with a rate of its own,
--                         h no leases before, and since when, ms (hold.lua),
--                         c the epoch for which a scan of the store has ended
-- ARGV[1]  the epoch that the caller knows
--
-- Returns {'STALE', current epoch or ''} and changes nothing when the epochs differ:
-- Redis lost the state of the consumer, or a broker replaced it.
-- Clock: TIME of this Redis, in every script.
local control = redis.call('HMGET', KEYS[5], 'e', 'sp', 'b', 'h', 'c')
if control[1] ~= ARGV[1] then return {'STALE', control[1] or ''} end
local epoch = ARGV[1]
local spilled = tonumber(control[2] or '-1') -- highest priority outside the window, -1 none
local brought = tonumber(control[3] or '-1') -- ms, -1 no job was brought
local hold = control[4] -- '<until> <since>', ms
local whole = control[5] == epoch -- the store has no jobs that are neither here nor spilled

local P42, RETRY = 4398046511104, 4503599627370496 -- 2^42, 2^52
local VERIFY, RECOVERED = 1, 2

-- fmt writes a number in full: tostring would round at 14 digits.
local function fmt(n) return string.format('%.0f', n) end

-- int reads an integer argument between lo and hi, or returns nil.
local function int(s, lo, hi)
  local n = tonumber(s)
  if n and n >= lo and n <= hi and n == math.floor(n) then return n end
  return nil
end

local function bad(what) return redis.error_reply('ERR malformed ' .. what) end

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- score returns the place of a ready job with that number of attempts.
local function score(priority, attempts, ms)
  local s = (1023 - priority) * P42 + ms
  if attempts > 0 then s = s + RETRY end
  return fmt(s)
end
local function priority_of(s) return 1023 - math.floor(s % RETRY / P42) end

-- pack writes a meta value and unpack_meta reads it. A plain job has no meta value:
-- unpack_meta then returns the given priority and zeros. The worker that has the lease comes last,
-- with its bar or as ''.
local function pack(priority, attempts, flags, token, ready)
  return fmt(priority) .. '|' .. fmt(attempts) .. '|' .. fmt(flags) .. '|' .. token .. '|' .. ready
end
local function unpack_meta(v, priority)
  if v then
    local p, a, f, t, r, w = string.match(v, '^(%d+)|(%d+)|(%d+)|([^|]*)|(%d*)(.*)$')
    if p then return tonumber(p), tonumber(a), tonumber(f), t, r, w end
  end
  return priority, 0, 0, '', '', ''
end

-- has_flag reports whether flags contain the bit.
local function has_flag(flags, bit) return math.floor(flags / bit) % 2 == 1 end
local function with_flag(flags, bit)
  if has_flag(flags, bit) then return flags end
  return flags + bit
end

-- next_due returns the time in ms until the first delayed job is due or the first
-- lease ends, at least 1. It returns 0 when no job is delayed or leased.
local function next_due(now)
  local first
  for i = 2, 3 do
    local head = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')
    if head[1] then
      local at = tonumber(head[2])
      if not first or at < first then first = at end
    end
  end
  if not first then return 0 end
  return math.max(first - now, 1)
end

