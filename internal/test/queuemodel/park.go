package queuemodel

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// unparked is the ready time of a leased job that Unpark has named.
const unparked = -1

// Park is park.lua: it sets leased jobs aside.
func (k *Consumer) Park(now int64, window int, leases []redisq.Lease, delays []time.Duration) []bool {
	out := make([]bool, len(leases))
	room := 3*window - len(k.delayed)
	for i, l := range leases {
		if out[i] = k.leasedAs(l); !out[i] {
			continue
		}
		m := k.metas[l.ID]
		delete(k.leased, l.ID)
		k.refund(l.Granted)
		m.attempts, m.token, m.worker = max(m.attempts-1, 0), "", ""
		switch {
		case m.since == unparked:
			k.ready[l.ID] = score(m.priority, m.attempts, now)
			m.since = 0
			if k.metas[l.ID] = m; m.attempts == 0 && m.flags == 0 {
				delete(k.metas, l.ID)
			}
		case room > 0:
			room--
			k.delayed[l.ID] = now + max(millis(delays[i]), 1)
			k.metas[l.ID] = m
		default:
			delete(k.metas, l.ID)
		}
	}
	return out
}

// Unpark is unpark.lua: it makes jobs ready whose wait is over.
func (k *Consumer) Unpark(now int64, jobs []redisq.Job) (ready int) {
	seen := map[ident.ID]bool{}
	for _, j := range jobs {
		if seen[j.ID] {
			continue
		}
		seen[j.ID] = true
		m := k.metas[j.ID]
		switch k.Standing(j.ID).State {
		case redisq.Leased:
			m.since = unparked
			k.metas[j.ID] = m
		case redisq.Missing:
			k.bring(j.ID)
			k.ready[j.ID] = score(j.Priority, 0, min(now, j.ID.Millis()))
			k.metas[j.ID] = meta{priority: j.Priority, flags: redisq.FlagVerify}
			ready++
		case redisq.Delayed:
			if m.since == 0 {
				continue
			}
			delete(k.delayed, j.ID)
			k.ready[j.ID] = score(m.priority, m.attempts, m.since)
			m.since = 0
			if k.metas[j.ID] = m; m.attempts == 0 && m.flags == 0 {
				delete(k.metas, j.ID)
			}
			ready++
		}
	}
	return ready
}
