-- grant.lua: part of the scripts that lease jobs. It has the only rule of how many
-- jobs may be leased, and the only code that writes new leases. Follows the prelude.
--
-- The last argument of such a script may be the limits of the consumer:
--
--   limits N WINDOW N WINDOW CONCURRENCY SHARE
--
-- Twice the most leases in any window of that many ms (0 0: no such rate), then the
-- most leases at one time (0: no such limit), then the percentage of leases that jobs
-- with attempts may get while others wait. At 100 the order alone decides. Without the
-- argument there are no limits, which costs nothing, and the share is 25.
--
-- A rate is counted in buckets: fields w<end> (first rate) and v<end> (second) of
-- control, with the number of leases granted before that end, ms. A bucket is 1/64 of
-- the window. Bound: a lease granted at t is in a bucket with end > t, and a bucket
-- counts while end > now - window, so every lease of the last window counts, and no
-- window that ends now holds more than N. A bucket counts up to 1/64 too long. A bucket
-- more than BACK ms ahead is from before the clock of Redis went back, and counts no more.
--
-- A replay has three keys more, and a consumer with a replay has one more:
--
-- KEYS[6]  ready    of the consumer of a replay  |  leased of the replay of a consumer
-- KEYS[7]  leased   of the consumer of a replay
-- KEYS[8]  control  of the consumer of a replay
--
-- The leases of a replay count where those of its consumer count, and both count together
-- for the concurrency. The limits of a replay may end with a rate of its own, N WINDOW,
-- which is counted in fields u<end> of its own control.
local BACK = 5000 -- as in reclaim.lua
local BEHIND = 50 -- ms after which a replay that waits for jobs of its consumer asks again
local limits, share = nil, 25
local counts, beside = KEYS[8] and 8 or 5, KEYS[7] and 7 or 6 -- numbers of keys
local behind = KEYS[8] ~= nil -- the jobs of the consumer come first
if KEYS[8] then hold = redis.call('HGET', KEYS[8], 'h') end
if #ARGV > 1 and #ARGV[#ARGV] > 12 and string.sub(ARGV[#ARGV], 1, 7) == 'limits ' then
  local n1, w1, n2, w2, most, part, own = string.match(ARGV[#ARGV], '^limits (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
  share = n1 and int(part, 1, 100)
  if not share then return bad('limits') end
  limits = {rates = {}, concurrency = tonumber(most)}
  local n3, w3 = string.match(own, '^ (%d+) (%d+)$')
  if own ~= '' and not (n3 and KEYS[8]) then return bad('limits') end
  for _, rate in ipairs({{'w', n1, w1, counts}, {'v', n2, w2, counts}, {'u', n3 or 0, w3 or 0, 5}}) do
    local n, window = int(rate[2], 0, 2147483647), int(rate[3], 0, 1099511627776)
    if not n or not window or (n > 0 and window < 1) then return bad('limits') end
    if n > 0 then
      limits.rates[#limits.rates + 1] = {kind = rate[1], n = n, window = window, grain = math.ceil(window / 64), key = rate[4]}
    end
  end
  ARGV[#ARGV] = nil
end

-- buckets returns the buckets of a rate that count at that time, oldest first, as
-- {end, leases}, with the sum of their leases, and the fields of the others.
local function buckets(rate, now)
  local counted, sum, gone = {}, 0, {}
  local all = redis.call('HGETALL', KEYS[rate.key])
  for i = 1, #all, 2 do
    local till = string.match(all[i], '^' .. rate.kind .. '(%d+)$')
    till = till and tonumber(till)
    if till and till > now - rate.window and till <= now + rate.grain + BACK then
      counted[#counted + 1] = {till, tonumber(all[i + 1])}
      sum = sum + tonumber(all[i + 1])
    elseif till then
      gone[#gone + 1] = all[i]
    end
  end
  table.sort(counted, function(a, b) return a[1] < b[1] end)
  return counted, sum, gone
end

-- allowed returns how many of n leases the limits allow now; none while the consumer is
-- held. Where these are fewer than n it also returns the ms until the hold ends or a rate
-- allows more, 0 where only the concurrency is used up. Cost: without rates at most one
-- count.
local function allowed(n, now)
  if n > 0 and hold then
    local till, since = string.match(hold, '^(%d+) (%d+)$')
    if tonumber(till) > now and tonumber(since) <= now + BACK then return 0, tonumber(till) - now end
  end
  if behind and n > 0 and redis.call('ZCARD', KEYS[6]) > 0 then return 0, BEHIND end
  if not limits or n == 0 then return n, 0 end
  local wait = 0
  if limits.concurrency > 0 then
    n = math.min(n, math.max(limits.concurrency - redis.call('ZCARD', KEYS[3]) - (KEYS[beside] and redis.call('ZCARD', KEYS[beside]) or 0), 0))
  end
  for _, rate in ipairs(limits.rates) do
    local counted, sum
    counted, sum, rate.gone = buckets(rate, now)
    if rate.n - sum < n then
      n = math.max(rate.n - sum, 0)
      if n == 0 then wait = 0 end -- a rate that still allowed some is not the one to wait for
      for _, b in ipairs(counted) do
        sum = sum - b[2]
        if sum < rate.n then
          wait = math.max(wait, b[1] + rate.window - now)
          break
        end
      end
    end
  end
  return n, wait
end

-- charge counts n leases that allowed has allowed, and returns the names of their buckets.
local function charge(n, now)
  local names = {}
  for i, rate in ipairs(limits and limits.rates or {}) do
    local gone = rate.gone
    names[i] = rate.kind .. fmt((math.floor(now / rate.grain) + 1) * rate.grain)
    redis.call('HINCRBY', KEYS[rate.key], names[i], n)
    if #gone > 0 then redis.call('HDEL', KEYS[rate.key], unpack(gone)) end
  end
  return table.concat(names, ' ')
end

-- first_ready returns how many first attempts are ready; total is the size of ready.
local function first_ready(total)
  local tail = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  if not tail[1] or tonumber(tail[2]) < RETRY then return total end
  return redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. fmt(RETRY))
end

-- delayed_is_full reports whether four windows of jobs wait for a time or another attempt; retries
-- is how many of the latter are ready. No first attempt is then granted: a consumer that
-- fails every job must not move its whole backlog there.
local function delayed_is_full(retries, cap) return redis.call('ZCARD', KEYS[2]) + retries >= 4 * cap end

-- split returns how many of n leases first attempts get, and how many retries. While
-- first attempts are left, retries get their share of the leases, counted by the fences,
-- and of the slots, but at least one slot. Otherwise they get the rest and three quarters
-- of the slots, so that the next first attempt finds one free. busy slots have retries;
-- slots is 0 where the caller has no bound.
local function split(n, firsts, retries, slots, busy)
  local function room(part)
    if slots == 0 then return n end
    return math.max(math.floor(slots * part / 100), 1) - busy
  end
  local fence = tonumber(redis.call('HGET', KEYS[5], 'f') or '0')
  local quota = math.floor((fence + n) * share / 100) - math.floor(fence * share / 100)
  local k = math.min(firsts, n - math.max(math.min(quota, room(share), retries), 0))
  if k < firsts then return k, n - k end
  return k, math.max(math.min(n - k, room(math.max(share, 75)), retries), 0)
end

-- after reports whether a > b in byte order; the < of Lua uses the locale.
local function after(a, b)
  for i = 1, 12 do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return (x or 0) > (y or 0) end
  end
  return false
end

-- merged joins the begins of both lanes by place, with their scores, up to n jobs.
local function merged(a, b, n)
  local out, i, j = {}, 1, 1
  while #out < 2 * n and (a[i] or b[j]) do
    local left = a[i] ~= nil
    if left and b[j] then
      local s, t = tonumber(a[i + 1]), tonumber(b[j + 1]) % RETRY
      left = s < t or (s == t and after(b[j], a[i]))
    end
    if left then
      out[#out + 1], out[#out + 2], i = a[i], a[i + 1], i + 2
    else
      out[#out + 1], out[#out + 2], j = b[j], b[j + 1], j + 2
    end
  end
  return out
end

-- reach returns the upper bound of the scores of a lane (0: first attempts, RETRY: retries)
-- that may be leased. While jobs are spilled, one below the highest spilled priority may not:
-- the store has more urgent jobs, which the refill loads. Retries that have a share of their
-- own do not wait for that, nor do they while delayed_is_full keeps the first attempts back.
local function reach(lane)
  if spilled < 0 then return lane == 0 and '(' .. fmt(RETRY) or '+inf' end
  return '(' .. fmt(lane + (1024 - spilled) * P42)
end

-- grant leases n jobs that the caller has removed from their sets, and returns the
-- first fence and the buckets that count the leases. The meta value of job i is
-- before[i] .. fence .. behind[i], in the form that pack writes; before[i] ends with the
-- epoch and a dot. leases holds the arguments of ZADD: deadline, ID, ...
local function grant(n, ids, before, behind, leases, now)
  local fence = redis.call('HINCRBY', KEYS[5], 'f', n) - n
  local values = {}
  for i = 1, n do
    values[2 * i - 1], values[2 * i] = ids[i], before[i] .. (fence + i) .. behind[i]
  end
  redis.call('ZADD', KEYS[3], unpack(leases))
  redis.call('HSET', KEYS[4], unpack(values))
  return fence + 1, limits and charge(n, now) or ''
end
