package reaper

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The progress of the scans is that of one history of the store. After the store was restored from
// a backup, jobs below a watermark may be open again, so everything that a broker remembers of its
// progress begins again, and so do the watermarks and books that it has stored meanwhile.

// restorations counts the restorations of the store. Worklist.mu guards count and unclean.
type restorations struct {
	saving  chan struct{} // capacity 1, full while watermarks are saved or forgotten; taken before Worklist.mu
	count   int
	unclean bool     // the store may have watermarks of the former history
	rewound ident.ID // the stored watermarks go back to it where they are later; zero: they stay
}

// take waits until no watermarks are saved or forgotten; give ends that.
func (s *restorations) take(ctx context.Context) error {
	select {
	case s.saving <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *restorations) give() { <-s.saving }

// Restored reports that the store was restored from a backup. All scans begin again, and Redis is
// compared with the store as after RedisChanged. Restored never blocks.
func (r *Reaper) Restored() {
	r.mu.Lock()
	r.restored.count++
	r.restored.unclean = true
	clear(r.scanStates)
	r.renew, r.sweep = true, true
	r.mu.Unlock()
	r.poke()
	time.AfterFunc(restoredAgain, r.compareAgain)
}

// restoredAgain is the time after which the open jobs are compared with Redis once more. An outcome that
// was stored before the store went back may be acknowledged in Redis afterwards: the job is open again,
// and Redis had it when the scan passed.
const restoredAgain = 30 * time.Second

// compareAgain lets every scan begin again at its settled watermark.
func (r *Reaper) compareAgain() {
	r.mu.Lock()
	for _, l := range r.scanStates {
		l.lost = true
	}
	r.mu.Unlock()
	r.poke()
}

// ClockStepped reports that the clock of the store's server went back, to a time that is at least
// beforeMs. No message that was stored since is behind a scan, if all brokers keep the store's clock.
// One of an earlier version does not, so what may be of the time since is scanned again.
// ClockStepped never blocks.
func (r *Reaper) ClockStepped(beforeMs int64) {
	to := ident.Before(beforeMs - steppedMargin.Milliseconds())
	r.mu.Lock()
	r.restored.count++
	if r.restored.rewound.IsZero() || to.Compare(r.restored.rewound) < 0 {
		r.restored.rewound = to
	}
	for no, l := range r.scanStates {
		if k := r.Catalogue.ConsumerByNo(no); k == nil || k.Replay == nil {
			l.settled, l.lost = minID(l.settled, to), true
		}
	}
	r.mu.Unlock()
	r.poke()
}

// steppedMargin is how long before the time that the clock went back to scans begin again.
const steppedMargin = time.Minute

// history returns the number of restorations that this process has seen.
func (r *Reaper) history() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restored.count
}

// another sets seen to the present history, and reports whether it was an earlier one.
func (r *Reaper) another(seen *int) bool {
	before := *seen
	*seen = r.history()
	return *seen != before
}

// cleanWatermarks removes the stored watermarks and books after a restoration. Nothing is saved or
// read before it has succeeded.
func (r *Reaper) cleanWatermarks(ctx context.Context) error {
	if err := r.restored.take(ctx); err != nil {
		return err
	}
	defer r.restored.give()
	r.mu.Lock()
	history, unclean, rewound := r.restored.count, r.restored.unclean, r.restored.rewound
	r.mu.Unlock()
	switch {
	case unclean:
		if err := r.Store.ForgetWatermarks(ctx); err != nil {
			return fmt.Errorf("the watermarks of the former history: %w", err)
		}
	case !rewound.IsZero():
		if err := r.Store.RewindWatermarks(ctx, rewound); err != nil {
			return fmt.Errorf("the watermarks after the clock of the store went back: %w", err)
		}
	default:
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored.count == history {
		r.restored.unclean, r.restored.rewound = false, ident.ID{}
	}
	return nil
}

// inHistory runs save, which writes watermarks, unless the store was restored since that history.
// It reports whether the history is still the present one.
func (r *Reaper) inHistory(ctx context.Context, history int, save func() error) (bool, error) {
	if err := r.restored.take(ctx); err != nil {
		return false, err
	}
	defer r.restored.give()
	if r.history() != history {
		return false, nil
	}
	err := save()
	return err == nil, err
}

// adopt takes over watermarks that are stored, of consumers whose watermarks the scan states know
// otherwise: another broker moved them, or the store went back. In the latter case the scan begins
// again there.
func (r *Reaper) adopt(history int, stored map[uint32]ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored.count != history {
		return
	}
	for no, id := range stored {
		l := r.scanStates[no]
		if l == nil {
			continue
		}
		if id.Compare(l.settled) < 0 {
			r.Log.Warn("the settled watermark of a consumer is stored as an earlier one; the reconciler scans from there",
				"consumer", no)
			l.lost = true
		}
		l.settled = id
	}
}

// advanced moves watermarks of the scan states, unless the store was restored since that history.
func (r *Reaper) advanced(history int, through map[uint32]ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored.count != history {
		return
	}
	for no, id := range through {
		if l := r.scanStates[no]; l != nil {
			l.settled = id
		}
	}
}
