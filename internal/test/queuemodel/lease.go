package queuemodel

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// lease leases a job that is in no set, and charges the attempt.
func (k *Consumer) lease(now int64, id ident.ID, m meta, lease time.Duration) redisq.Lease {
	m.attempts++
	m.token = k.token()
	k.metas[id] = m
	k.leased[id] = now + millis(lease)
	return redisq.Lease{ID: id, Priority: m.priority, Attempt: m.attempts, Flags: m.flags, Token: m.token,
		Worker: m.worker}
}

// ClaimEach is claim_each.lua.
func (k *Consumer) ClaimEach(now int64, wishes []redisq.Wish) []redisq.Grant {
	out := make([]redisq.Grant, len(wishes))
	limits, leased := wishes[0].Limits, 0
	held := k.Held
	k.Held = 0 // a hold is for pushes
	most, wait := k.allowed(limits, len(wishes), now)
	k.Held = held
	for i, w := range wishes {
		g := &out[i]
		if before := k.Standing(w.Job.ID); leased == most && before.State != redisq.Leased &&
			(before.State != redisq.Missing || w.Insert) {
			g.Before, g.Limited, g.Wait = before, true, wait
		} else if g.Lease, g.Before = k.claimOne(now, w); g.Lease.Token != "" {
			leased++
		}
	}
	if leased > 0 {
		granted := k.charge(limits, leased, now)
		for i := range out {
			if out[i].Lease.Token != "" {
				out[i].Lease.Granted = granted
			}
		}
	}
	return out
}

// ClaimOne is claim_each.lua for one job and without limits: it leases a ready or delayed job, and
// with insert also an unknown one.
func (k *Consumer) ClaimOne(now int64, job redisq.Job, lease time.Duration, insert bool) (redisq.Lease,
	redisq.Standing) {
	return k.claimOne(now, redisq.Wish{Job: job, Lease: lease, Insert: insert})
}

func (k *Consumer) claimOne(now int64, w redisq.Wish) (redisq.Lease, redisq.Standing) {
	job := w.Job
	before := k.Standing(job.ID)
	m := meta{priority: job.Priority, attempts: job.Attempts, flags: redisq.FlagVerify, since: now}
	switch before.State {
	case redisq.Leased:
		return redisq.Lease{}, before
	case redisq.Missing:
		if !w.Insert {
			return redisq.Lease{}, before
		}
		k.bring(job.ID)
	case redisq.Ready:
		m = k.metaOf(job.ID)
		m.since = sinceOf(k.ready[job.ID])
		delete(k.ready, job.ID)
	case redisq.Delayed:
		m = k.metas[job.ID]
		m.since = now
		delete(k.delayed, job.ID)
	}
	m.worker = w.Worker
	return k.lease(now, job.ID, m, w.Lease), before
}

// leasedAs reports whether the token belongs to the current lease of the job.
func (k *Consumer) leasedAs(l redisq.Lease) bool {
	_, leased := k.leased[l.ID]
	return leased && l.Token != "" && k.metas[l.ID].token == l.Token
}

// Extend is extend.lua: it moves the deadlines of leases.
func (k *Consumer) Extend(now int64, leases []redisq.Lease, lease time.Duration) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.leasedAs(l); out[i] {
			k.leased[l.ID] = now + millis(lease)
		}
	}
	return out
}

// RestoreLeases is restore_leases.lua: it writes lost leases again.
func (k *Consumer) RestoreLeases(now int64, leases []redisq.Lease, lease time.Duration) []bool {
	out := make([]bool, len(leases))
	seen := map[ident.ID]bool{}
	for i, l := range leases {
		if seen[l.ID] {
			continue
		}
		seen[l.ID] = true
		m := k.metas[l.ID]
		_, leased := k.leased[l.ID]
		if leased || m.attempts >= l.Attempt {
			out[i] = leased && m.token == l.Token
			continue
		}
		since := now
		if s, ready := k.ready[l.ID]; ready {
			since = sinceOf(s)
		} else if _, delayed := k.delayed[l.ID]; !delayed {
			k.bring(l.ID)
		}
		delete(k.ready, l.ID)
		delete(k.delayed, l.ID)
		k.metas[l.ID] = meta{priority: l.Priority, attempts: l.Attempt, flags: m.flags | redisq.FlagVerify, token: l.Token,
			worker: l.Worker, since: since}
		k.leased[l.ID] = now + millis(lease)
		out[i] = true
	}
	return out
}

// Nack is nack.lua: it ends leases; their jobs are due after the delays.
func (k *Consumer) Nack(now int64, leases []redisq.Lease, delays []time.Duration) []bool {
	return k.nack(now, leases, delays, func(m meta) meta { return m })
}

// GiveBack is nack.lua for jobs whose claim was no attempt.
func (k *Consumer) GiveBack(now int64, leases []redisq.Lease, delays []time.Duration) []bool {
	return k.nack(now, leases, delays, func(m meta) meta {
		m.attempts, m.flags = max(m.attempts-1, 0), m.flags|redisq.FlagVerify
		return m
	})
}

func (k *Consumer) nack(now int64, leases []redisq.Lease, delays []time.Duration, charge func(meta) meta) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.leasedAs(l); !out[i] {
			continue
		}
		m := charge(k.metas[l.ID])
		m.token, m.worker, m.since = "", "", 0
		delete(k.leased, l.ID)
		k.metas[l.ID] = m
		if delays[i] > 0 {
			k.delayed[l.ID] = now + millis(delays[i])
		} else {
			k.ready[l.ID] = score(m.priority, m.attempts, now)
		}
	}
	return out
}

// Release is release.lua: it undoes claims and their attempts.
func (k *Consumer) Release(leases []redisq.Lease) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.leasedAs(l); !out[i] {
			continue
		}
		m := k.metas[l.ID]
		delete(k.leased, l.ID)
		since := m.since
		m.attempts, m.token, m.worker, m.since = max(m.attempts-1, 0), "", "", 0
		k.ready[l.ID] = score(m.priority, m.attempts, since)
		k.refund(l.Granted)
		if k.metas[l.ID] = m; m.attempts == 0 && m.flags == 0 {
			delete(k.metas, l.ID)
		}
	}
	return out
}

// Ack is ack.lua: it removes jobs and returns how many of them were in a set.
func (k *Consumer) Ack(ids []ident.ID) int {
	n := 0
	for _, id := range ids {
		for _, set := range []map[ident.ID]int64{k.ready, k.delayed, k.leased} {
			if _, ok := set[id]; ok {
				delete(set, id)
				n++
			}
		}
		delete(k.metas, id)
	}
	return n
}

// AckLeases is ack_leases.lua: it removes the jobs of leases that are held, and flags those that wait.
func (k *Consumer) AckLeases(leases []redisq.Lease) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.leasedAs(l); out[i] {
			delete(k.leased, l.ID)
			delete(k.metas, l.ID)
			continue
		}
		_, ready := k.ready[l.ID]
		if _, delayed := k.delayed[l.ID]; ready || delayed {
			m := k.metaOf(l.ID)
			m.flags |= redisq.FlagVerify
			k.metas[l.ID] = m
		}
	}
	return out
}

// exhaustedLease is how long reclaim leases an exhausted job to its caller.
const exhaustedLease = 10 * time.Second

// clockBack is how far the clock may go back until reclaim drops the keys.
const clockBack = 5 * time.Second

// WentBack is the start of reclaim.lua. If the clock went back, it drops the keys and returns
// true; otherwise it records the time.
func (k *Consumer) WentBack(now int64) bool {
	if now < k.Looked-millis(clockBack) {
		*k = *New()
		return true
	}
	if now >= k.Looked+1000 {
		k.Looked = now
	}
	return false
}

// Reclaim is reclaim.lua: it ends up to limit leases that are past their deadline. A job with
// most or more attempts stays leased under a new token. With most 0 no job is exhausted.
func (k *Consumer) Reclaim(now int64, limit, most int) redisq.Expired {
	var out redisq.Expired
	for _, id := range ordered(k.leased) {
		if k.leased[id] > now || len(out.Returned)+len(out.Exhausted) == limit {
			break
		}
		m := k.metas[id]
		m.flags |= redisq.FlagVerify
		if most > 0 && m.attempts >= most {
			m.token = k.token()
			k.leased[id] = now + millis(exhaustedLease)
			out.Exhausted = append(out.Exhausted, redisq.Lease{ID: id, Priority: m.priority, Attempt: m.attempts, Flags: m.flags,
				Token: m.token, Worker: m.worker})
		} else {
			delete(k.leased, id)
			k.ready[id] = score(m.priority, m.attempts, now)
			out.Returned = append(out.Returned, redisq.Job{ID: id, Priority: m.priority, Attempts: m.attempts,
				Worker: m.worker})
			m.token, m.worker, m.since = "", "", 0
		}
		k.metas[id] = m
	}
	k.Fence += int64(len(out.Returned)) // the script takes a fence for every ended lease
	k.Promote(now)
	out.NextDue = k.nextDue(now)
	out.Empty = out.NextDue == 0 && len(k.ready) == 0
	return out
}
