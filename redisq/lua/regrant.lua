-- regrant.lua: move a lease to the present in the count of its rates.
--
-- ARGV[2]  buckets of the lease, as claim.lua returned them; '': none, so count one more
-- ARGV[3]  limits, see grant.lua
--
-- Returns {1, buckets} or, if the rates do not allow it, {0, ms until they may}. The
-- lease is then in no bucket.
-- Bound: without its old bucket the others are N - 1 at most while that bucket counts,
-- so the moved lease keeps every window at N. The concurrency is not asked: the lease
-- exists. Cost: as allowed and charge.
if #ARGV ~= 2 or not limits then return bad('regrant') end
local now = clock()
refund(ARGV[2])
limits.concurrency, behind = 0, false
local n, wait = allowed(1, now)
if n < 1 then return {0, wait} end
return {1, charge(1, now)}
