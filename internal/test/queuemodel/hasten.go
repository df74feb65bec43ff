package queuemodel

import (
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// Hasten is hasten.lua: it makes delayed jobs ready now.
func (k *Consumer) Hasten(now int64, ids []ident.ID) (ready int, unknown []ident.ID) {
	moved := map[ident.ID]bool{}
	for _, id := range ids {
		due, delayed := k.delayed[id]
		m := k.metas[id]
		switch {
		case moved[id]:
		case delayed && m.since == 0 && due > now:
			moved[id] = true
			delete(k.delayed, id)
			k.ready[id] = score(m.priority, m.attempts, now)
			if m.attempts == 0 && m.flags == 0 {
				delete(k.metas, id)
			}
			ready++
		case k.Standing(id).State == redisq.Missing:
			unknown = append(unknown, id)
		}
	}
	return ready, unknown
}
