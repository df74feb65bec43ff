package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The redrives of the store, by consumer and number.

// A redriveKey names a redrive.
type redriveKey struct{ consumer, no uint32 }

// A storedRedrive is a redrive with the jobs that it has opened and that are not over.
type storedRedrive struct {
	durable.Redriving
	jobs map[ident.ID]durable.RedrivenJob
	at   int64 // when it was created, in events of the store
}

// clone copies a redrive.
func (r *storedRedrive) clone() *storedRedrive {
	out := &storedRedrive{Redriving: r.Redriving, jobs: map[ident.ID]durable.RedrivenJob{}, at: r.at}
	for id, j := range r.jobs {
		out.jobs[id] = j
	}
	return out
}

func (s *store) createRedriving(r durable.Redriving) durable.Redriving {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.redrivings {
		if k.consumer == r.ConsumerNo {
			r.No = max(r.No, k.no)
		}
	}
	r.No++
	r.Busy, r.CreatedMs, r.StateMs, r.StageMs = true, s.nowMs(), s.nowMs(), s.nowMs()
	r.ToMs = r.CreatedMs + 1000
	s.events++
	s.redrivings[redriveKey{r.ConsumerNo, r.No}] = &storedRedrive{r, map[ident.ID]durable.RedrivenJob{}, s.events}
	return r
}

// busyRedrivings returns copies, in order.
func (s *store) busyRedrivings(after uint32) (out []durable.Redriving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.redrivings {
		if k.consumer > after && r.Busy {
			out = append(out, r.Redriving)
		}
	}
	slices.SortFunc(out, func(a, b durable.Redriving) int {
		return int(a.ConsumerNo)<<16 + int(a.No) - int(b.ConsumerNo)<<16 - int(b.No)
	})
	return out
}

// meant returns the dead letters that a selection means, from a message on.
func (s *store) meant(of durable.DeadSelection, from ident.ID, limit int) (page []durable.DeadJob, next ident.ID) {
	for _, d := range s.deadJobs(of.ConsumerNo, from, 1<<30) {
		if of.HasFingerprint && d.Fingerprint != of.Fingerprint || d.DiedMs < of.FromMs || of.ToMs > 0 && d.DiedMs > of.ToMs {
			continue
		}
		if len(page) == limit {
			return page, d.ID
		}
		page = append(page, d)
	}
	return page, ident.ID{}
}

// changeRedriving changes a redrive, with mu held in f.
func (s *store) changeRedriving(consumer, no uint32, f func(r *storedRedrive) error) (durable.Redriving, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.redrivings[redriveKey{consumer, no}]
	if r == nil {
		return durable.Redriving{}, durable.ErrNotFound
	}
	err := f(r)
	r.Busy = r.State == durable.RedriveRunning || r.Redriven > r.Delivered+r.Dead
	return r.Redriving, err
}

func (s *store) advanceRedriving(p durable.RedriveStep) (moved []durable.OpenJob, out durable.Redriving) {
	out, _ = s.changeRedriving(p.ConsumerNo, p.No, func(r *storedRedrive) error {
		if r.State != durable.RedriveRunning || r.Cursor != p.From {
			return nil
		}
		letters := map[ident.ID]durable.Outcome{}
		for _, id := range p.IDs {
			letters[id] = s.dead[jobKey{p.ConsumerNo, id}]
		}
		moved = s.reopenHere(p.ConsumerNo, p.IDs, p.NowMs, true)
		for _, j := range moved {
			o := letters[j.ID]
			if s.flaw == redrivesAreForgotten {
				continue
			}
			r.jobs[j.ID] = durable.RedrivenJob{ID: j.ID, MovedMs: p.NowMs, Stage: r.Stage, Fingerprint: o.Fingerprint()}
		}
		r.Cursor = p.Through
		if n := int64(len(moved)); n > 0 {
			r.Redriven, r.StageJobs, r.StageMs = r.Redriven+n, r.StageJobs+n, p.NowMs
		}
		return nil
	})
	return moved, out
}

func (s *store) settleRedriving(consumer, no uint32, ends []durable.RedriveEnd) (durable.Redriving, error) {
	return s.changeRedriving(consumer, no, func(r *storedRedrive) error {
		for _, e := range ends {
			j, ok := r.jobs[e.ID]
			if !ok {
				continue
			}
			delete(r.jobs, e.ID)
			if e.Dead {
				r.Dead++
			} else {
				r.Delivered++
			}
			if j.Stage == r.Stage {
				r.StageOver++
				if e.Again {
					r.StageAgain++
				}
			}
		}
		return nil
	})
}

func (s *store) redrivenJobs(of *durable.Redriving, after ident.ID, limit int) (out []durable.RedrivenJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.redrivings[redriveKey{of.ConsumerNo, of.No}]; r != nil {
		for id, j := range r.jobs {
			if id.Compare(after) > 0 {
				out = append(out, j)
			}
		}
	}
	slices.SortFunc(out, func(a, b durable.RedrivenJob) int { return a.ID.Compare(b.ID) })
	return out[:min(limit, len(out))]
}

func (t storeSeam) BusyRedrivings(ctx context.Context, after uint32, _ int) ([]durable.Redriving, error) {
	return read(ctx, t, "BusyRedrivings", after, func() []durable.Redriving { return t.s.busyRedrivings(after) })
}

func (t storeSeam) DeadLetters(ctx context.Context, of durable.DeadSelection, from ident.ID, _ bool,
	limit int) ([]durable.DeadJob, ident.ID, error) {
	type answer struct {
		page []durable.DeadJob
		next ident.ID
	}
	a, err := read(ctx, t, "DeadLetters", of.ConsumerNo, func() (a answer) {
		a.page, a.next = t.s.meant(of, from, limit)
		return a
	})
	return a.page, a.next, err
}

// DeadAmong is of redrives that are asked for single jobs, which the simulation does not have.
func (t storeSeam) DeadAmong(context.Context, durable.DeadSelection, []ident.ID) ([]durable.DeadHead, error) {
	return nil, nil
}

// RedrivePicks is as DeadAmong.
func (t storeSeam) RedrivePicks(context.Context, *durable.Redriving, ident.ID, int) ([]ident.ID, error) {
	return nil, nil
}

func (t storeSeam) RedrivenJobs(ctx context.Context, of *durable.Redriving, after ident.ID,
	limit int) ([]durable.RedrivenJob, error) {
	return read(ctx, t, "RedrivenJobs", of.ConsumerNo, func() []durable.RedrivenJob {
		return t.s.redrivenJobs(of, after, limit)
	})
}

func (t storeSeam) AdvanceRedriving(ctx context.Context, p durable.RedriveStep) ([]durable.OpenJob, durable.Redriving,
	error) {
	type answer struct {
		moved []durable.OpenJob
		after durable.Redriving
	}
	a, err := read(ctx, t, "AdvanceRedriving", p.ConsumerNo, func() (a answer) {
		a.moved, a.after = t.s.advanceRedriving(p)
		for _, j := range a.moved {
			t.l.note("redriven", p.ConsumerNo, j.ID, a.after.ID())
			t.l.w.checker.reopened(jobKey{p.ConsumerNo, j.ID})
			t.l.w.checker.redrivenBy(redriveKey{p.ConsumerNo, p.No}, j.ID)
		}
		return a
	})
	return a.moved, a.after, err
}

func (t storeSeam) SettleRedriving(ctx context.Context, consumerNo, no uint32,
	ends []durable.RedriveEnd) (durable.Redriving, error) {
	return t.changed(ctx, "SettleRedriving", consumerNo, func() (durable.Redriving, error) {
		return t.s.settleRedriving(consumerNo, no, ends)
	})
}

func (t storeSeam) ChangeRedriving(ctx context.Context, consumerNo, no uint32,
	f func(r *durable.Redriving) bool) (durable.Redriving, error) {
	return t.changed(ctx, "ChangeRedriving", consumerNo, func() (durable.Redriving, error) {
		return t.s.changeRedriving(consumerNo, no, func(r *storedRedrive) error {
			was := r.Redriving
			if !f(&r.Redriving) {
				return nil
			}
			if was.State.Ended() {
				r.Redriving = was
				return durable.ErrRedriveEnded
			}
			return nil
		})
	})
}

func (t storeSeam) changed(ctx context.Context, op string, consumerNo uint32,
	f func() (durable.Redriving, error)) (durable.Redriving, error) {
	type answer struct {
		r   durable.Redriving
		err error
	}
	a, err := read(ctx, t, op, consumerNo, func() (a answer) {
		a.r, a.err = f()
		t.l.note(op, consumerNo, none, a.r.ID()+" "+a.r.State.String())
		return a
	})
	if err == nil {
		err = a.err
	}
	return a.r, err
}

// RedriveLetters is of redrives to another consumer, which the simulation does not have.
func (t storeSeam) RedriveLetters(context.Context, uint32, uint32, []ident.ID) ([]ident.ID, error) {
	return nil, nil
}

// ReplayCounts is as RedriveLetters.
func (t storeSeam) ReplayCounts(context.Context, *durable.Replay) (durable.ReplayCounts, error) {
	return durable.ReplayCounts{}, nil
}

// Replays is as RedriveLetters.
func (t storeSeam) Replays(context.Context, durable.Consumer, uint32, int) ([]durable.Replay, error) {
	return nil, nil
}
