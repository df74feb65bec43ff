-- leased.lua: part of the scripts that need a lease. Follows the prelude.
--
-- leased returns for each ID its meta value if tokens[i] belongs to the current lease,
-- else false. A lease past its deadline stays current until reclaim ends it.
local function leased(ids, tokens)
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

