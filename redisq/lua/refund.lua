-- refund.lua: part of the scripts that undo leases. Follows the prelude.
--
-- refund takes leases that were not used out of their buckets (see grant.lua). names is
-- what charge returned for a lease. A bucket that is gone stays gone.
local function refund(names)
  for name in string.gmatch(names, '[wvu]%d+') do
    local key = KEYS[8] and string.sub(name, 1, 1) ~= 'u' and 8 or 5
    local n = tonumber(redis.call('HGET', KEYS[key], name) or '0')
    if n == 1 then
      redis.call('HDEL', KEYS[key], name)
    elseif n > 1 then
      redis.call('HINCRBY', KEYS[key], name, -1)
    end
  end
end
