package queuemodel

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// timeOf is a time of the clock, zero for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// first returns the lowest value of a set above a bound, 0 if there is none.
func first(set map[ident.ID]int64, above int64) (least int64) {
	for _, at := range set {
		if at > above && (least == 0 || at < least) {
			least = at
		}
	}
	return least
}

// Outlook is outlook.lua, of a consumer with few jobs.
func (k *Consumer) Outlook(now int64, job ident.ID, limits redisq.Limits) redisq.Outlook {
	o := redisq.Outlook{Now: timeOf(now), Ready: len(k.ready), Leased: len(k.leased), Spilled: k.Spilled >= 0,
		Whole: k.Epoch != "" && k.Scanned == k.Epoch, FirstLeaseEnd: timeOf(first(k.leased, 0))}
	oldest := int64(0)
	older := func(since int64) {
		if oldest == 0 || since < oldest {
			oldest = since
		}
	}
	for _, s := range k.ready {
		older(sinceOf(s))
	}
	due := map[ident.ID]int64{}
	for id, at := range k.delayed {
		m := k.metas[id]
		switch {
		case at <= now:
			o.Ready++
			older(at)
			continue
		case m.since != 0:
			if o.Parked++; o.Parked == 1 || id.Compare(o.Blocked) < 0 {
				o.Blocked = id
			}
		default:
			if due[id] = at; m.attempts > 0 {
				o.Attempted++
			}
		}
		o.Delayed++
	}
	o.OldestReady, o.FirstDue = timeOf(oldest), timeOf(first(due, 0))
	if k.Held > now && k.HeldAt <= now+millis(clockBack) {
		o.HeldUntil = timeOf(k.Held)
	}
	o.Limited, o.Wait = k.limited(now, max(o.Ready, 1), limits)
	o.Job = k.place(job)
	return o
}

// limited returns the limit that keeps one of the ready jobs back.
func (k *Consumer) limited(now int64, ready int, limits redisq.Limits) (redisq.Limit, time.Duration) {
	free := *k
	free.Held = 0
	n, wait := free.allowed(limits, ready, now)
	switch {
	case n == 0 && wait > 0:
		return redisq.RateLimit, wait
	case wait > 0 || n > 0 && n < ready && limits.Rated():
		return redisq.RateLimit, 0
	case n == 0:
		return redisq.ConcurrencyLimit, 0
	}
	return redisq.NoLimit, 0
}

// place returns where a job is.
func (k *Consumer) place(id ident.ID) redisq.Place {
	p := redisq.Place{Standing: k.Standing(id)}
	switch p.State {
	case redisq.Ready:
		mine := k.ready[id]
		p.Since = timeOf(sinceOf(mine))
		for other, s := range k.ready {
			if s < mine || s == mine && other.Compare(id) < 0 {
				p.Ahead++
			}
			if (s < retries) == (mine < retries) && s>>readyBits < mine>>readyBits {
				p.Above++
			}
		}
	case redisq.Delayed:
		p.Parked = k.metas[id].since != 0
	}
	return p
}
