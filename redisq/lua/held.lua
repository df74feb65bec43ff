-- held.lua: stands behind the prelude of scripts that need the lease.
--
-- held returns, for the i-th of the IDs, its meta value when the i-th token is
-- the one of its current lease, else false. A lease whose deadline has passed
-- is current until it is reclaimed.
local function held(ids, tokens)
  local metas = redis.call('HMGET', KEYS[4], unpack(ids))
  local leased = redis.call('ZMSCORE', KEYS[3], unpack(ids))
  local out = {}
  for i = 1, #ids do
    out[i] = false
    if metas[i] and leased[i] then
      local _, _, _, token = unpack_meta(metas[i], 0)
      if token ~= '' and token == tokens[i] then out[i] = metas[i] end
    end
  end
  return out
end

