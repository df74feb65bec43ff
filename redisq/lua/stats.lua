-- stats.lua: the sizes of a consumer's sets.
--
-- Returns {ready, delayed, leased, highest spilled priority or -1, spills so
-- far, age ms of the job at the head of ready or 0, next due ms, 1 a scan of the store has
-- ended since the state began}.
-- Read only. Cost: O(log n).
if #ARGV ~= 1 then return bad('stats') end
local now, age = clock(), 0
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if head[1] then age = math.max(now - tonumber(head[2]) % P42, 0) end
return {
  redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  spilled, tonumber(redis.call('HGET', KEYS[5], 'ss') or '0'), age, next_due(now), whole and 1 or 0,
}
