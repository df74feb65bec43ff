-- publish_rate.lua: take places for messages in all publish rates that bound them.
--
-- KEYS[i]      rate  HASH  e<end> -> places taken before that end, ms
-- ARGV[1]      places wanted, 1..1000000
-- ARGV[2i]     most places of KEYS[i] in any window
-- ARGV[2i+1]   length of that window, ms
--
-- Returns the places that each rate has taken, 0 to those wanted. Where these are fewer it also returns
-- the ms until a place is free, and the number i of the rate that has it last; else 0 and 0.
-- A window is counted in 64 buckets, as in grant.lua: a bucket counts up to 1/64 of the window too long,
-- and one more than BACK ms ahead is from before the clock of Redis went back, and counts no more.
-- Replay: takes the places twice. Cost: at most about 70 fields for each rate.
-- Clock: TIME of this Redis.
local BACK = 5000
local function fmt(n) return string.format('%.0f', n) end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local n, wait, by = tonumber(ARGV[1]), 0, 0
local rates = {}
for i = 1, #KEYS do
  local most, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local grain = math.ceil(window / 64)
  local counted, sum, gone = {}, 0, {}
  local all = redis.call('HGETALL', KEYS[i])
  for j = 1, #all, 2 do
    local till = tonumber(string.sub(all[j], 2))
    if till and till > now - window and till <= now + grain + BACK then
      counted[#counted + 1] = {till, tonumber(all[j + 1])}
      sum = sum + tonumber(all[j + 1])
    else
      gone[#gone + 1] = all[j]
    end
  end
  rates[i] = {most = most, grain = grain, window = window, counted = counted, sum = sum, gone = gone}
  n = math.min(n, math.max(most - sum, 0))
end
if n < tonumber(ARGV[1]) then
  for i, rate in ipairs(rates) do
    local sum, free = rate.sum + n, 0 -- with these places
    if sum >= rate.most then
      free = rate.window + rate.grain
      table.sort(rate.counted, function(a, b) return a[1] < b[1] end)
      for _, b in ipairs(rate.counted) do
        sum = sum - b[2]
        if sum < rate.most then
          free = b[1] + rate.window - now
          break
        end
      end
    end
    if free > wait then wait, by = free, i end
  end
end
for i = 1, #KEYS do
  local rate = rates[i]
  if #rate.gone > 0 then redis.call('HDEL', KEYS[i], unpack(rate.gone)) end
  if n > 0 then
    redis.call('HINCRBY', KEYS[i], 'e' .. fmt((math.floor(now / rate.grain) + 1) * rate.grain), n)
    redis.call('PEXPIRE', KEYS[i], fmt(rate.window + rate.grain + BACK))
  end
end
return {n, fmt(wait), by}
