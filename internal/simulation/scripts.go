package simulation

import (
	"time"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// The scripts of redisq/lua, on maps, each at one moment. now is TIME in ms.

// millis rounds up, as redisq does: nothing is due early.
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

func (k *lane) enqueue(now int64, window int, jobs []redisq.Job, src redisq.Source) redisq.Enqueued {
	out := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1}
	brought := k.brought
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
		case k.admits(j.Priority, window, src):
			k.ready[j.ID] = score(j.Priority, since)
			if j.Attempts > 0 || flags > 0 {
				k.metas[j.ID] = meta{priority: j.Priority, attempts: j.Attempts, flags: flags}
			}
			out.Added++
		default:
			out.Spilled++
			k.spilled = max(k.spilled, j.Priority)
			if out.FirstSpilled < 0 {
				out.FirstSpilled = i
			}
		}
		seen[j.ID] = true
	}
	if out.Spilled > 0 && src != redisq.Recovered {
		k.spills++
	}
	out.SpilledPriority = k.spilled
	return out
}

// offer is enqueue of jobs that are leased at once where nothing else waits; 0: not.
func (k *lane) offer(now int64, window int, jobs []redisq.Job, src redisq.Source, lease time.Duration) redisq.Enqueued {
	idle := lease > 0 && k.idle(now, window) && len(jobs) <= window
	for _, j := range jobs {
		idle = idle && j.Delay <= 0 && j.Attempts == 0 && j.ID.Millis() > k.brought
	}
	out := k.enqueue(now, window, jobs, src)
	if !idle || out.Known > 0 {
		return out
	}
	for _, j := range jobs {
		delete(k.ready, j.ID)
		out.Leases = append(out.Leases, k.lease(now, j.ID, meta{priority: j.Priority, since: now}, lease))
	}
	return out
}

// idle tells whether a claim would find nothing, and would get what is new.
func (k *lane) idle(now int64, window int) bool {
	for _, due := range k.delayed {
		if due <= now {
			return false
		}
	}
	return len(k.ready) == 0 && k.spilled < 0 && len(k.delayed) < 4*window
}

// bring notes a job that was offered by another way than a fresh offer.
func (k *lane) bring(id ident.ID) { k.brought = max(k.brought, id.Millis()) }

// seen looks jobs up: not careful, only where a fresh one can be.
func (k *lane) seen(jobs []redisq.Job, careful, delayed bool) map[ident.ID]bool {
	out := map[ident.ID]bool{}
	for _, j := range jobs {
		_, ready := k.ready[j.ID]
		_, later := k.delayed[j.ID]
		_, leased := k.leased[j.ID]
		out[j.ID] = ready || later && (careful || delayed) || leased && careful
	}
	return out
}

func (k *lane) admits(priority, window int, src redisq.Source) bool {
	worst, ahead := redisq.MaxPriority, 0
	for _, s := range k.ready {
		p := priorityOf(s)
		worst = min(worst, p)
		if p >= priority {
			ahead++
		}
	}
	if src == redisq.Recovered {
		return len(k.ready) < window || priority > worst && ahead < window
	}
	if priority <= k.spilled {
		return false
	}
	return len(k.ready) < window || len(k.ready) < 2*window && priority > worst
}

// visible lists the ready jobs that may be handed out.
func (k *lane) visible() []ident.ID {
	ids := ordered(k.ready)
	for i, id := range ids {
		if priorityOf(k.ready[id]) < k.spilled {
			return ids[:i]
		}
	}
	return ids
}

func (k *lane) claim(now int64, window, n int, lease time.Duration) redisq.Claim {
	k.promote(now)
	var out redisq.Claim
	if n > 0 && len(k.delayed) < 4*window {
		ids := k.visible()
		for _, id := range ids[:min(n, len(ids))] {
			m := k.metaOf(id)
			m.priority, m.since = priorityOf(k.ready[id]), sinceOf(k.ready[id])
			delete(k.ready, id)
			out.Leases = append(out.Leases, k.lease(now, id, m, lease))
		}
	}
	out.NextDue, out.Ready, out.Spilled = k.nextDue(now), len(k.ready), k.spilled >= 0
	return out
}

// lease makes a job leased that is in no set.
func (k *lane) lease(now int64, id ident.ID, m meta, lease time.Duration) redisq.Lease {
	m.attempts++
	m.token = k.token()
	k.metas[id] = m
	k.leased[id] = now + millis(lease)
	return redisq.Lease{ID: id, Priority: m.priority, Attempt: m.attempts, Flags: m.flags, Token: m.token}
}

func (k *lane) claimOne(now int64, job redisq.Job, lease time.Duration, insert bool) (redisq.Lease, redisq.Standing) {
	before := k.standing(job.ID)
	m := meta{priority: job.Priority, attempts: job.Attempts, flags: redisq.FlagVerify, since: now}
	switch before.State {
	case redisq.Leased:
		return redisq.Lease{}, before
	case redisq.Missing:
		if !insert {
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
	return k.lease(now, job.ID, m, lease), before
}

// held tells whether the token is that of the job's lease.
func (k *lane) held(l redisq.Lease) bool {
	_, leased := k.leased[l.ID]
	return leased && l.Token != "" && k.metas[l.ID].token == l.Token
}

func (k *lane) extend(now int64, leases []redisq.Lease, lease time.Duration) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.held(l); out[i] {
			k.leased[l.ID] = now + millis(lease)
		}
	}
	return out
}

func (k *lane) hold(now int64, leases []redisq.Lease, lease time.Duration) []bool {
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
		k.metas[l.ID] = meta{priority: l.Priority, attempts: l.Attempt, flags: m.flags | redisq.FlagVerify, token: l.Token, since: since}
		k.leased[l.ID] = now + millis(lease)
		out[i] = true
	}
	return out
}

func (k *lane) nack(now int64, leases []redisq.Lease, delays []time.Duration) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.held(l); !out[i] {
			continue
		}
		m := k.metas[l.ID]
		m.token, m.since = "", 0
		delete(k.leased, l.ID)
		k.metas[l.ID] = m
		if delays[i] > 0 {
			k.delayed[l.ID] = now + millis(delays[i])
		} else {
			k.ready[l.ID] = score(m.priority, now)
		}
	}
	return out
}

func (k *lane) release(leases []redisq.Lease) []bool {
	out := make([]bool, len(leases))
	for i, l := range leases {
		if out[i] = k.held(l); !out[i] {
			continue
		}
		m := k.metas[l.ID]
		delete(k.leased, l.ID)
		k.ready[l.ID] = score(m.priority, m.since)
		m.attempts, m.token, m.since = max(m.attempts-1, 0), "", 0
		if k.metas[l.ID] = m; m.attempts == 0 && m.flags == 0 {
			delete(k.metas, l.ID)
		}
	}
	return out
}

func (k *lane) ack(ids []ident.ID) int {
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

// exhaustedLease is how long reclaim keeps an exhausted job for its caller.
const exhaustedLease = 10 * time.Second

// clockBack is how far the clock may go back before reclaim drops the lane.
const clockBack = 5 * time.Second

// wentBack drops everything where the clock went back, and else writes it down.
func (k *lane) wentBack(now int64) bool {
	if now < k.looked-millis(clockBack) {
		*k = *newLane()
		return true
	}
	if now >= k.looked+1000 {
		k.looked = now
	}
	return false
}

func (k *lane) reclaim(now int64, limit, most int) redisq.Expired {
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
			out.Exhausted = append(out.Exhausted, redisq.Lease{ID: id, Priority: m.priority, Attempt: m.attempts, Flags: m.flags, Token: m.token})
		} else {
			delete(k.leased, id)
			k.ready[id] = score(m.priority, now)
			m.token, m.since = "", 0
			out.Returned = append(out.Returned, id)
		}
		k.metas[id] = m
	}
	k.fence += int64(len(out.Returned)) // the script counts all that it looked at
	k.promote(now)
	out.NextDue = k.nextDue(now)
	out.Empty = out.NextDue == 0 && len(k.ready) == 0
	return out
}

func (k *lane) peek(now int64, after *redisq.Cursor, limit int) []redisq.Waiting {
	k.promote(now)
	var out []redisq.Waiting
	for _, id := range k.visible() {
		s := k.ready[id]
		if after != nil && (s < after.Score || s == after.Score && id.Compare(after.ID) <= 0) {
			continue
		}
		if len(out) == limit {
			break
		}
		m := k.metaOf(id)
		out = append(out, redisq.Waiting{ID: id, Priority: priorityOf(s), Attempts: m.attempts, Flags: m.flags, Score: s})
	}
	return out
}

func (k *lane) standing(id ident.ID) redisq.Standing {
	m := k.metas[id]
	if s, ok := k.ready[id]; ok {
		return redisq.Standing{State: redisq.Ready, Priority: priorityOf(s), Attempts: m.attempts, Flags: m.flags}
	}
	if at, ok := k.delayed[id]; ok {
		return redisq.Standing{State: redisq.Delayed, Priority: m.priority, Attempts: m.attempts, Flags: m.flags, At: time.UnixMilli(at).UTC()}
	}
	if at, ok := k.leased[id]; ok {
		return redisq.Standing{State: redisq.Leased, Priority: m.priority, Attempts: m.attempts, Flags: m.flags, Token: m.token, At: time.UnixMilli(at).UTC()}
	}
	return redisq.Standing{}
}

func (k *lane) stats(now int64) redisq.Stats {
	s := redisq.Stats{Ready: len(k.ready), Delayed: len(k.delayed), Leased: len(k.leased), SpilledPriority: k.spilled, Spills: k.spills, NextDue: k.nextDue(now)}
	if ids := ordered(k.ready); len(ids) > 0 {
		s.Oldest = time.Duration(max(now-sinceOf(k.ready[ids[0]]), 0)) * time.Millisecond
	}
	return s
}

func (k *lane) settleSpilled(priority int, spills int64) bool {
	if k.spills != spills {
		return false
	}
	k.spilled = priority
	return true
}
