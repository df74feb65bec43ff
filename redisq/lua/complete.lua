-- complete.lua: note that a scan of the store has ended since the state of this epoch began.
--
-- Returns {1}. The field c names the epoch, so it says nothing of a state that replaces this one.
if #ARGV ~= 1 then return bad('complete') end
redis.call('HSET', KEYS[5], 'c', epoch)
return {1}
