package redrive

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// tick is the interval of rounds while there are redrives, idle without.
	tick = 200 * time.Millisecond
	idle = time.Second
	// listed is the number of redrives that one statement reads.
	listed = 500
	// page is the number of letters that one step opens, and of jobs that one step settles.
	page = 200
)

// A Store is the part of durable.Store used here.
type Store interface {
	BusyRedrivings(ctx context.Context, consumerNo, no uint32, limit int) ([]durable.Redriving, error)
	DeadLetters(ctx context.Context, of durable.DeadSelection, from ident.ID, down bool,
		limit int) (page []durable.DeadJob, next ident.ID, err error)
	DeadAmong(ctx context.Context, of durable.DeadSelection, ids []ident.ID) ([]durable.DeadHead, error)
	RedrivePicks(ctx context.Context, r *durable.Redriving, after ident.ID, limit int) ([]ident.ID, error)
	RedrivenJobs(ctx context.Context, r *durable.Redriving, after ident.ID, limit int) ([]durable.RedrivenJob, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	AdvanceRedriving(ctx context.Context, p durable.RedriveStep) ([]durable.OpenJob, durable.Redriving, error)
	SettleRedriving(ctx context.Context, consumerNo, no uint32, ends []durable.RedriveEnd) (durable.Redriving, error)
	ChangeRedriving(ctx context.Context, consumerNo, no uint32, f func(r *durable.Redriving) bool) (durable.Redriving,
		error)
	CreateReplay(ctx context.Context, r durable.Replay) (durable.Replay, error)
	Replay(ctx context.Context, no uint32) (durable.Replay, error)
	Replays(ctx context.Context, k durable.Consumer, from uint32, limit int) ([]durable.Replay, error)
	ReplayCounts(ctx context.Context, r *durable.Replay) (durable.ReplayCounts, error)
	SetReplayState(ctx context.Context, no uint32, to durable.ReplayState) (durable.Replay, error)
}

// Jobs is the part of jobs.Service used here.
type Jobs interface {
	RedriveBy(ctx context.Context, consumer uint32, ids []ident.ID, open jobs.Redriving) ([]durable.OpenJob, error)
}

// A Cluster tells which consumers this broker looks after, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	NowMs() int64
}

// Options of New. All are required.
type Options struct {
	Store     Store
	Jobs      Jobs
	Catalogue *catalogue.Catalogue
	Cluster   Cluster
	Policies  *policy.Book
	Dirty     func(consumer uint32) // the store has open jobs that the queue did not take
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// A Runner lets the redrives of the consumers that this broker owns go on.
type Runner struct {
	o    Options
	wake chan struct{} // capacity 1

	opened prometheus.Counter     // jobs
	ended  *prometheus.CounterVec // redrives, by state

	runs map[key]*run   // of the loop alone
	last map[uint32]key // channel -> the redrive that had the last turn; of the loop alone
}

type key struct{ consumer, no uint32 }

// A run is what a Runner remembers of a redrive between two rounds. Another broker begins without it.
type run struct {
	watched ident.ID // the last job that was looked at
	budget  budget
}

// New returns a Runner. Nothing runs before Run.
func New(o Options) *Runner {
	r := &Runner{o: o, wake: make(chan struct{}, 1), runs: map[key]*run{}, last: map[uint32]key{}}
	r.opened = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_redriven_jobs_total",
		Help: "Dead letters that redrives of a selection opened again through this broker."})
	r.ended = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_redrives_ended_total",
		Help: "Redrives that this broker brought to an end, by state: done, or stopped by their canary."}, []string{"state"})
	for _, state := range endNames {
		r.ended.WithLabelValues(state) // present before the first one, which is then an increase
	}
	o.Registry.MustRegister(r.opened, r.ended)
	return r
}

// Wake makes a Runner look for redrives at once.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	guard.Loop(ctx, "redrives", func(ctx context.Context) {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		failing := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			case <-r.wake:
			}
			busy, err := r.round(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				r.o.Log.Warn("a redrive cannot go on; it tries again", "error", err)
			}
			failing = err != nil
			wait := idle
			if busy {
				wait = tick
			}
			timer.Reset(wait)
		}
	})
}

// goOn counts what is over and opens further letters, until a time, but at least some of each.
func (r *Runner) goOn(ctx context.Context, w *work, until time.Time) error {
	of := w.row
	if of.TargetNo != 0 {
		return r.follow(ctx, of)
	}
	now := time.Now()
	if err := r.settle(ctx, w.u, of, now.Add(until.Sub(now)/2)); err != nil {
		return err
	}
	for once := true; of.State == durable.RedriveRunning && (once || time.Now().Before(until)); once = false {
		if full(of) {
			if goes, err := r.evaluate(ctx, w.k, of); !goes || err != nil {
				return err
			}
			continue
		}
		if goes, err := r.step(ctx, w.u, of); !goes || err != nil {
			return err
		}
	}
	return nil
}

// step opens the next letters, or ends the redrive. It returns whether another step may follow at once.
func (r *Runner) step(ctx context.Context, u *run, of *durable.Redriving) (goes bool, err error) {
	wanted := min(page, room(of))
	if wanted == 0 { // the limit of the request
		return r.exhausted(ctx, of)
	}
	most := u.budget.take(of.Rate, wanted)
	if most == 0 {
		return false, nil
	}
	ids, through, more, err := r.next(ctx, of, int(most))
	if err != nil {
		return false, err
	}
	if len(ids) == 0 && !more {
		return r.exhausted(ctx, of)
	}
	_, err = r.o.Jobs.RedriveBy(ctx, of.ConsumerNo, ids, func(ctx context.Context, _ uint32, ids []ident.ID,
		nowMs int64) ([]durable.OpenJob, error) {
		moved, after, err := r.o.Store.AdvanceRedriving(ctx, durable.RedriveStep{ConsumerNo: of.ConsumerNo, No: of.No,
			From: of.Cursor, Through: through, IDs: ids, NowMs: nowMs})
		if err == nil {
			*of = after
			u.budget.spend(len(moved))
			r.opened.Add(float64(len(moved)))
		}
		if errors.Is(err, durable.ErrOutcomeUnknown) { // they may be open: the reconciler offers them
			r.o.Dirty(of.ConsumerNo)
		}
		return moved, err
	})
	return true, err
}

// next returns letters that are meant, up to the message through, and whether there may be more behind.
func (r *Runner) next(ctx context.Context, of *durable.Redriving, most int) (ids []ident.ID, through ident.ID,
	more bool, err error) {
	if of.Picked {
		picks, err := r.o.Store.RedrivePicks(ctx, of, of.Cursor, most)
		if err != nil || len(picks) == 0 {
			return nil, of.Cursor, false, err
		}
		found, err := r.o.Store.DeadAmong(ctx, of.DeadSelection, picks)
		for _, d := range found {
			ids = append(ids, d.ID)
		}
		return ids, picks[len(picks)-1], true, err
	}
	letters, next, err := r.o.Store.DeadLetters(ctx, of.DeadSelection, of.Cursor.Next(), false, most)
	if err != nil {
		return nil, of.Cursor, false, err
	}
	through = of.Cursor
	for _, d := range letters {
		ids, through = append(ids, d.ID), d.ID
	}
	if len(ids) < most && !next.IsZero() { // it has examined as many as it may
		through = next.Previous()
	}
	return ids, through, !next.IsZero(), nil
}

// settle counts the jobs that are over. It looks at each job once in a round, as far as the time allows.
func (r *Runner) settle(ctx context.Context, u *run, of *durable.Redriving, until time.Time) error {
	for of.Redriven > of.Delivered+of.Dead {
		opened, err := r.o.Store.RedrivenJobs(ctx, of, u.watched, page)
		if err != nil {
			return err
		}
		ends, err := r.over(ctx, of, opened)
		if err != nil {
			return err
		}
		if len(ends) > 0 {
			after, err := r.o.Store.SettleRedriving(ctx, of.ConsumerNo, of.No, ends)
			if err != nil {
				return err
			}
			*of = after
		}
		if len(opened) < page {
			u.watched = ident.ID{}
			return nil
		}
		u.watched = opened[len(opened)-1].ID
		if !time.Now().Before(until) {
			return nil
		}
	}
	return nil
}

// over returns the outcomes of those jobs that are over. A job without a row was delivered, and retention
// has removed it since. One that was opened again since was dead in between.
func (r *Runner) over(ctx context.Context, of *durable.Redriving,
	opened []durable.RedrivenJob) (ends []durable.RedriveEnd, err error) {
	if len(opened) == 0 {
		return nil, nil
	}
	states, err := r.states(ctx, of, opened)
	if err != nil {
		return nil, err
	}
	for _, j := range opened {
		s := states[j.ID]
		switch {
		case s.Status == durable.Delivered, s.Status == durable.Waiting:
			ends = append(ends, durable.RedriveEnd{ID: j.ID})
		case s.Status == durable.Dead:
			ends = append(ends, durable.RedriveEnd{ID: j.ID, Dead: true, Again: s.Fingerprint == j.Fingerprint})
		case s.RedrivenMs > j.MovedMs:
			ends = append(ends, durable.RedriveEnd{ID: j.ID, Dead: true})
		}
	}
	return ends, nil
}

func (r *Runner) states(ctx context.Context, of *durable.Redriving,
	opened []durable.RedrivenJob) (map[ident.ID]durable.JobState, error) {
	ids := make([]ident.ID, len(opened))
	for i, j := range opened {
		ids[i] = j.ID
	}
	return r.o.Store.JobStates(ctx, of.ConsumerNo, ids)
}
