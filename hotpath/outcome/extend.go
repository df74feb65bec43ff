package outcome

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// extendEvery is the interval at which the leases of entries that wait for the store are extended.
const extendEvery = 250 * time.Millisecond

// extendWaiting extends the leases of entries that wait for the store, until ctx ends. A worker has
// finished such a job in time. Without the extension a store that stands still for longer than the
// visibility timeout would let another worker have the job.
func (o *Committer) extendWaiting(ctx context.Context) {
	tick := time.NewTicker(extendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for of, leases := range o.late() {
			for len(leases) > 0 {
				n := min(len(leases), redisq.MaxBatch)
				o.extend(ctx, of, leases[:n])
				leases = leases[n:]
			}
		}
	}
}

// A leaseGroup is the leases that one call extends.
type leaseGroup struct {
	consumer uint32
	by       time.Duration
}

// late returns the leases to extend of entries that have waited for extendEvery.
func (o *Committer) late() map[leaseGroup][]redisq.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.oldest.IsZero() || time.Since(o.oldest) < extendEvery {
		return nil
	}
	out := map[leaseGroup][]redisq.Lease{}
	for _, part := range [][]Entry{o.storing, o.pending} {
		for i := range part {
			if r := &part[i]; r.ExtendBy > 0 && r.Lease.Token != "" {
				of := leaseGroup{r.Outcome.ConsumerNo, r.ExtendBy}
				out[of] = append(out[of], r.Lease)
			}
		}
	}
	return out
}

func (o *Committer) extend(ctx context.Context, of leaseGroup, leases []redisq.Lease) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := guard.Do("extension of leases", func() error {
		_, err := o.options.Queue.Extend(ctx, of.consumer, leases, of.by)
		return err
	})
	if err != nil {
		o.options.Log.Debug("leases of finished jobs cannot be extended", "consumer", of.consumer, "leases", len(leases),
			"error", err)
	}
}
