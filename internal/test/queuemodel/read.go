package queuemodel

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// Peek is peek.lua: it lists the jobs that may be leased after the cursor, in the order of a
// claim at a share of 100.
func (k *Consumer) Peek(now int64, window int, after *redisq.Cursor, limit int) []redisq.Waiting {
	k.Promote(now)
	var out []redisq.Waiting
	visible := k.visible(window, 100)
	slices.SortFunc(visible, func(a, b ident.ID) int {
		return cmp.Or(cmp.Compare(k.ready[a]%retries, k.ready[b]%retries), a.Compare(b))
	})
	for _, id := range visible {
		s := k.ready[id] % retries
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

// Standing is probe.lua for one job.
func (k *Consumer) Standing(id ident.ID) redisq.Standing {
	m := k.metas[id]
	if s, ok := k.ready[id]; ok {
		return redisq.Standing{State: redisq.Ready, Priority: priorityOf(s), Attempts: m.attempts, Flags: m.flags}
	}
	if at, ok := k.delayed[id]; ok {
		return redisq.Standing{State: redisq.Delayed, Priority: m.priority, Attempts: m.attempts, Flags: m.flags,
			At: time.UnixMilli(at).UTC()}
	}
	if at, ok := k.leased[id]; ok {
		return redisq.Standing{State: redisq.Leased, Priority: m.priority, Attempts: m.attempts, Flags: m.flags,
			Token: m.token, Worker: m.worker, At: time.UnixMilli(at).UTC()}
	}
	return redisq.Standing{}
}

// Stats is stats.lua, without the epoch.
func (k *Consumer) Stats(now int64) redisq.Stats {
	s := redisq.Stats{Ready: len(k.ready), Delayed: len(k.delayed), Leased: len(k.leased), SpilledPriority: k.Spilled,
		Whole: k.whole(), Spills: k.Spills, NextDue: k.nextDue(now)}
	if ids := ordered(k.ready); len(ids) > 0 {
		s.Oldest = time.Duration(max(now-sinceOf(k.ready[ids[0]]), 0)) * time.Millisecond
	}
	return s
}

// Complete is complete.lua.
func (k *Consumer) Complete() { k.Scanned = k.Epoch }

// whole reports whether no job is outside.
func (k *Consumer) whole() bool { return k.Spilled < 0 && k.Epoch != "" && k.Scanned == k.Epoch }

// ReplaceSpilled is spilled.lua: it sets the highest priority outside the window, unless jobs
// were spilled since the caller read spills.
func (k *Consumer) ReplaceSpilled(priority int, spills int64) bool {
	if k.Spills != spills {
		return false
	}
	k.Spilled = priority
	return true
}
