package queuemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// visible returns the ready jobs that may be leased, first attempts before retries. Those below the
// highest priority that has jobs outside the window may not; save retries that have a share of their
// own, or that come alone because delayed jobs keep the first attempts back.
func (k *Consumer) visible(window, share int) []ident.ID {
	free := share < 100 || k.delayedIsFull(window, len(k.ready)-k.firsts())
	return slices.DeleteFunc(ordered(k.ready), func(id ident.ID) bool {
		return priorityOf(k.ready[id]) < k.Spilled && (k.ready[id] < retries || !free)
	})
}

// firsts returns the number of ready jobs without attempts.
func (k *Consumer) firsts() int {
	n := 0
	for _, s := range k.ready {
		if s < retries {
			n++
		}
	}
	return n
}

// delayedIsFull reports whether four windows of jobs wait for a time or for another attempt. No first
// attempt is then granted: a consumer that fails every job must not move its whole backlog there.
func (k *Consumer) delayedIsFull(window, retries int) bool { return len(k.delayed)+retries >= 4*window }

// shareOf returns the share of retries in percent.
func shareOf(l redisq.Limits) int {
	if l.RetryShare <= 0 {
		return redisq.DefaultRetryShare
	}
	return l.RetryShare
}

// Claim is claim.lua: it promotes due jobs and leases up to n ready ones, as split allows.
func (k *Consumer) Claim(now int64, window, n int, lease time.Duration, limits redisq.Limits) redisq.Claim {
	k.Promote(now)
	asked := n
	n, wait := k.allowed(limits, n, now)
	var out redisq.Claim
	again := 0
	if n > 0 {
		firsts, after := k.lanes(window, shareOf(limits))
		again = len(k.ready) - k.firsts()
		ids := k.choose(firsts, after, n, limits)
		for _, id := range ids {
			if k.ready[id] >= retries {
				again--
			}
			m := k.metaOf(id)
			m.priority, m.since, m.worker = priorityOf(k.ready[id]), sinceOf(k.ready[id]), limits.Worker
			delete(k.ready, id)
			out.Leases = append(out.Leases, k.lease(now, id, m, lease))
		}
		if len(ids) > 0 {
			granted := k.charge(limits, len(ids), now)
			for i := range out.Leases {
				out.Leases[i].Granted = granted
			}
		}
	}
	out.NextDue, out.Ready, out.Spilled, out.Retries = k.nextDue(now), len(k.ready), k.Spilled >= 0, again
	out.Whole = k.whole()
	if n < asked && out.Ready > 0 {
		out.Limited, out.NextDue = limitOf(wait, out.NextDue)
	}
	return out
}

// lanes returns the first attempts and the retries that may be leased.
func (k *Consumer) lanes(window, share int) (firsts, again []ident.ID) {
	for _, id := range k.visible(window, share) {
		if k.ready[id] < retries {
			firsts = append(firsts, id)
		} else {
			again = append(again, id)
		}
	}
	if k.delayedIsFull(window, len(k.ready)-k.firsts()) {
		firsts = nil
	}
	return firsts, again
}

// choose returns the jobs of a claim.
func (k *Consumer) choose(firsts, again []ident.ID, n int, limits redisq.Limits) []ident.ID {
	if shareOf(limits) == 100 {
		all := append(slices.Clone(firsts), again...)
		slices.SortFunc(all, func(a, b ident.ID) int {
			return cmp.Or(cmp.Compare(k.ready[a]%retries, k.ready[b]%retries), a.Compare(b))
		})
		return all[:min(n, len(all))]
	}
	f, r := k.split(n, len(firsts), len(again), limits)
	return append(slices.Clone(firsts[:f]), again[:r]...)
}

// split is the rule of grant.lua for the share of retries.
func (k *Consumer) split(n, firsts, again int, limits redisq.Limits) (f, r int) {
	share := shareOf(limits)
	room := func(part int) int {
		if limits.Slots <= 0 {
			return n
		}
		return max(limits.Slots*part/100, 1) - limits.Retrying
	}
	fence := int(k.Fence)
	quota := (fence+n)*share/100 - fence*share/100
	f = min(firsts, n-max(min(quota, room(share), again), 0))
	if f < firsts {
		return f, n - f
	}
	return f, max(min(n-f, room(max(share, 75)), again), 0)
}

// A rate is one of the rates of limits, as a script gets it.
type rate struct {
	kind          string
	n             int
	window, grain int64
}

func ratesOf(l redisq.Limits) []rate {
	var out []rate
	for _, r := range []struct {
		kind string
		redisq.Rate
	}{{"w", l.Rate}, {"v", l.Pace}} {
		if r.N > 0 {
			window := millis(r.Per + l.Slack)
			out = append(out, rate{r.kind, r.N, window, (window + 63) / 64})
		}
	}
	return out
}

// bucket returns the time in the name of a bucket of the rate.
func (r rate) bucket(name string) (till int64, ok bool) {
	text, ok := strings.CutPrefix(name, r.kind)
	till, err := strconv.ParseInt(text, 10, 64)
	return till, ok && err == nil
}

// counts reports whether a bucket that ends then counts.
func (r rate) counts(till, now int64) bool {
	return till > now-r.window && till <= now+r.grain+millis(clockBack)
}

// allowed returns how many of n leases the limits allow, and the wait until a rate allows more.
func (k *Consumer) allowed(l redisq.Limits, n int, now int64) (int, time.Duration) {
	if n > 0 && k.Held > now && k.HeldAt <= now+millis(clockBack) {
		return 0, time.Duration(k.Held-now) * time.Millisecond
	}
	if n > 0 && l.Concurrency > 0 {
		n = min(n, max(l.Concurrency-len(k.leased), 0))
	}
	wait := int64(0)
	for _, r := range ratesOf(l) {
		counted := map[int64]int{}
		sum := 0
		for name, leases := range k.buckets {
			if till, ok := r.bucket(name); ok && r.counts(till, now) {
				counted[till] = leases
				sum += leases
			}
		}
		if r.n-sum >= n {
			continue
		}
		if n = max(r.n-sum, 0); n == 0 {
			wait = 0
		}
		for _, till := range sortedKeys(counted) {
			if sum -= counted[till]; sum < r.n {
				wait = max(wait, till+r.window-now)
				break
			}
		}
	}
	return n, time.Duration(wait) * time.Millisecond
}

func sortedKeys(m map[int64]int) []int64 {
	var out []int64
	for at := range m {
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

// charge counts leases in the buckets of the rates, and returns their names.
func (k *Consumer) charge(l redisq.Limits, n int, now int64) string {
	var names []string
	for _, r := range ratesOf(l) {
		for name := range k.buckets {
			if till, ok := r.bucket(name); ok && !r.counts(till, now) {
				delete(k.buckets, name)
			}
		}
		name := fmt.Sprintf("%s%d", r.kind, (now/r.grain+1)*r.grain)
		k.buckets[name] += n
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// refund takes a lease that was not used out of its buckets.
func (k *Consumer) refund(granted string) {
	for _, name := range strings.Fields(granted) {
		if n := k.buckets[name]; n > 1 {
			k.buckets[name] = n - 1
		} else {
			delete(k.buckets, name)
		}
	}
}

// Regrant is regrant.lua: it moves a lease to the present in the count of its rates.
func (k *Consumer) Regrant(now int64, lease redisq.Lease, limits redisq.Limits) (redisq.Lease, time.Duration) {
	limits.Concurrency = 0
	k.refund(lease.Granted)
	n, wait := k.allowed(limits, 1, now)
	if lease.Granted = ""; n > 0 {
		lease.Granted = k.charge(limits, 1, now)
		return lease, 0
	}
	return lease, max(wait, time.Millisecond)
}

// limitOf returns the limit that kept a job back, and the time of the next try: the wait of a rate,
// or due, but for the concurrency within 100 ms.
func limitOf(wait, due time.Duration) (redisq.Limit, time.Duration) {
	const fullPause = 100 * time.Millisecond
	switch {
	case wait > 0:
		return redisq.RateLimit, wait
	case due == 0 || due > fullPause:
		return redisq.ConcurrencyLimit, fullPause
	}
	return redisq.ConcurrencyLimit, due
}

// Hold is hold.lua: it grants no leases for a while. 0 ends the hold.
func (k *Consumer) Hold(now int64, wait time.Duration) {
	if wait <= 0 {
		k.Held, k.HeldAt = 0, 0
		return
	}
	if till := now + millis(wait); till > k.Held || k.HeldAt > now {
		k.Held, k.HeldAt = till, now
	}
}
