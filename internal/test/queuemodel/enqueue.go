package queuemodel

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// millis rounds up, as redisq does, so that no job is due early.
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// Enqueue is enqueue.lua: it adds jobs to the queue as far as the window has room.
func (k *Consumer) Enqueue(now int64, window int, jobs []redisq.Job, src redisq.Source) redisq.Enqueued {
	out := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1}
	brought := k.Brought
	delayed, careful := false, src != redisq.Fresh
	for _, j := range jobs {
		delayed = delayed || j.Delay > 0
		careful = careful || j.ID.Millis() <= brought
		if src != redisq.Fresh {
			k.bring(j.ID)
		}
	}
	seen := k.seen(jobs, careful, delayed)
	for i, j := range jobs {
		since, flags := now, redisq.Flags(0)
		if src != redisq.Fresh || j.ID.Millis() <= brought {
			flags |= redisq.FlagVerify
		}
		if src == redisq.Recovered {
			flags |= redisq.FlagRecovered
		}
		if src == redisq.Recovered || j.Attempts == 0 {
			since = min(now, j.ID.Millis())
		}
		switch {
		case seen[j.ID]:
			out.Known++
			continue
		case j.Delay > 0:
			k.delayed[j.ID] = now + millis(j.Delay)
			k.metas[j.ID] = meta{priority: j.Priority, attempts: j.Attempts, flags: flags}
			out.Added++
		case k.admits(j, window, src):
			k.ready[j.ID] = score(j.Priority, j.Attempts, since)
			if j.Attempts > 0 || flags > 0 {
				k.metas[j.ID] = meta{priority: j.Priority, attempts: j.Attempts, flags: flags}
			}
			out.Added++
		default:
			out.Spilled++
			k.Spilled = max(k.Spilled, j.Priority)
			if out.FirstSpilled < 0 {
				out.FirstSpilled = i
			}
		}
		seen[j.ID] = true
	}
	if out.Spilled > 0 && src != redisq.Recovered {
		k.Spills++
	}
	out.SpilledPriority = k.Spilled
	return out
}

// Offer is offer.lua: it is Enqueue, and leases the jobs at once if a claim right after it
// would lease exactly these jobs. A lease of 0 only enqueues.
func (k *Consumer) Offer(now int64, window int, b redisq.Batch, src redisq.Source) redisq.Enqueued {
	jobs, lease := b.Jobs, b.Lease
	idle := lease > 0 && k.idle(now, shareOf(b.Limits)) && !k.delayedIsFull(window, len(k.ready)) &&
		len(k.ready)+len(jobs) <= window
	for _, j := range jobs {
		idle = idle && j.Delay <= 0 && j.Attempts == 0 && j.ID.Millis() > k.Brought
	}
	if idle {
		n, _ := k.allowed(b.Limits, len(jobs), now)
		idle = n == len(jobs)
	}
	out := k.Enqueue(now, window, jobs, src)
	if !idle || out.Known > 0 {
		return out
	}
	granted := k.charge(b.Limits, len(jobs), now)
	for _, j := range jobs {
		delete(k.ready, j.ID)
		l := k.lease(now, j.ID, meta{priority: j.Priority, since: min(now, j.ID.Millis())}, lease)
		l.Granted = granted
		out.Leases = append(out.Leases, l)
	}
	return out
}

// idle reports whether no job waits that comes before a new one, inside or outside the window.
// Of the delayed jobs only the first one counts.
func (k *Consumer) idle(now int64, share int) bool {
	waiting := k.firsts()
	if share == 100 {
		waiting = len(k.ready)
	}
	if waiting > 0 || k.Spilled >= 0 {
		return false
	}
	for _, id := range ordered(k.delayed)[:min(len(k.delayed), 1)] {
		return k.delayed[id] > now || share < 100 && k.metas[id].attempts > 0
	}
	return true
}

// bring records a job that is added by another call than a fresh offer.
func (k *Consumer) bring(id ident.ID) { k.Brought = max(k.Brought, id.Millis()) }

// seen reports which jobs are known. Without careful it searches ready, and delayed if one
// of the jobs is delayed; with careful it searches every set.
func (k *Consumer) seen(jobs []redisq.Job, careful, delayed bool) map[ident.ID]bool {
	out := map[ident.ID]bool{}
	for _, j := range jobs {
		_, ready := k.ready[j.ID]
		_, later := k.delayed[j.ID]
		_, leased := k.leased[j.ID]
		out[j.ID] = ready || later && (careful || delayed) || leased && careful
	}
	return out
}

// admits is the rule of the window: it reports whether a ready job of that priority enters.
// First attempts and retries each have a window.
func (k *Consumer) admits(j redisq.Job, window int, src redisq.Source) bool {
	worst, ahead, all, priority := redisq.MaxPriority, 0, 0, j.Priority
	for _, s := range k.ready {
		if s >= retries != (j.Attempts > 0) {
			continue
		}
		all++
		p := priorityOf(s)
		worst = min(worst, p)
		if p >= priority {
			ahead++
		}
	}
	if src == redisq.Recovered {
		return all < window || priority > worst && ahead < window
	}
	if priority <= k.Spilled {
		return false
	}
	return all < window || all < 2*window && priority > worst
}
