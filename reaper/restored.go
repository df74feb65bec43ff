package reaper

import (
	"context"
	"fmt"

	"github.com/penstock-broker/penstock/internal/ident"
)

// The progress of the scans is that of one history of the store. After the store was restored from
// a backup, jobs below a watermark may be open again, so everything that a broker remembers of its
// progress begins again, and so do the watermarks and books that it has stored meanwhile.

// restorations counts the restorations of the store. Agenda.mu guards count and unclean.
type restorations struct {
	saving  chan struct{} // capacity 1, full while watermarks are saved or forgotten; taken before Agenda.mu
	count   int
	unclean bool // the store may have watermarks of the former history
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
	clear(r.ledgers)
	r.renew, r.sweep = true, true
	r.mu.Unlock()
	r.poke()
}

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
	history, unclean := r.restored.count, r.restored.unclean
	r.mu.Unlock()
	if !unclean {
		return nil
	}
	if err := r.Store.ForgetWatermarks(ctx); err != nil {
		return fmt.Errorf("the watermarks of the former history: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restored.unclean = r.restored.count != history
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

// advanced moves watermarks of the ledgers, unless the store was restored since that history.
func (r *Reaper) advanced(history int, through map[uint32]ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored.count != history {
		return
	}
	for no, id := range through {
		if l := r.ledgers[no]; l != nil {
			l.settled = id
		}
	}
}
