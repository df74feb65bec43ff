package outcome

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// acknowledgeStored acknowledges stored outcomes in Redis until o.unacknowledged is closed. The
// storing goroutine does not wait for Redis: a Redis that hangs, or one node of a Cluster, must not
// delay the storing of outcomes.
func (o *Committer) acknowledgeStored(ctx context.Context) {
	for range o.unacknowledged {
		o.mu.Lock()
		batch := o.stored
		o.stored = nil
		o.mu.Unlock()
		_ = guard.Do("acknowledgement of outcomes", func() error { // on failure the leases expire
			o.acknowledge(ctx, batch)
			return nil
		})
		failpoint.At(failpoint.AfterAck)
		// Sinks are called after Redis: a client that learns of the end of a job may ask for its
		// next state at once.
		o.finish(batch, nil)
	}
}

// acknowledge ends the leases of stored outcomes. A failure of Redis here does no harm.
func (o *Committer) acknowledge(ctx context.Context, batch []Entry) {
	acks := map[uint32][]ident.ID{}
	dead := map[uint32][]redisq.Lease{} // may be redriven and leased again before Redis hears of their deaths
	waiting := map[waiters]*nacks{}
	for _, r := range batch {
		k := r.Outcome.ConsumerNo
		if r.Outcome.Kind == durable.OutcomeDead && r.Lease.Token != "" {
			dead[k] = append(dead[k], r.Lease)
			continue
		}
		if r.Outcome.Kind != durable.OutcomeRetry && r.Outcome.Kind != durable.OutcomeGivenBack {
			acks[k] = append(acks[k], r.Outcome.ID)
			continue
		}
		of := waiters{k, r.Outcome.Kind == durable.OutcomeGivenBack}
		n := waiting[of]
		if n == nil {
			n = &nacks{}
			waiting[of] = n
		}
		n.leases = append(n.leases, r.Lease)
		n.delays = append(n.delays, r.Delay)
		n.sinks = append(n.sinks, r.Sink)
	}
	if len(acks) > 0 {
		batches := make([]redisq.Done, 0, len(acks))
		for k, ids := range acks {
			batches = append(batches, redisq.Done{Consumer: k, IDs: ids})
		}
		if _, errs := o.options.Queue.AckMany(ctx, batches); cmp.Or(errs...) != nil {
			o.options.Metrics.AcknowledgeErrors.Inc()
			o.options.Log.Debug("acks not taken by Redis; the leases will end", "error", cmp.Or(errs...))
		}
	}
	o.acknowledgeDead(ctx, dead)
	for of, n := range waiting {
		o.nack(ctx, of, n)
	}
}

// A waiters names jobs that one call gives back.
type waiters struct {
	consumer  uint32
	givenBack bool // their claims were no attempts
}

// A nacks is what the call needs.
type nacks struct {
	leases []redisq.Lease
	delays []time.Duration
	sinks  []Sink
}

func (o *Committer) nack(ctx context.Context, of waiters, n *nacks) {
	call := o.options.Queue.Nack
	if of.givenBack {
		call = o.options.Queue.GiveBack
	}
	taken, err := call(ctx, of.consumer, n.leases, n.delays)
	if err != nil {
		o.options.Metrics.AcknowledgeErrors.Inc()
		o.options.Log.Debug("nacks not taken by Redis; the leases will end", "error", err)
		return
	}
	for i, sink := range n.sinks {
		if sink != nil && taken[i] {
			sink.Retrying(n.delays[i])
		}
	}
}

// acknowledgeDead ends the leases of jobs that are dead, each only if it is still the lease of the job.
func (o *Committer) acknowledgeDead(ctx context.Context, dead map[uint32][]redisq.Lease) {
	if len(dead) == 0 {
		return
	}
	ended := make([]redisq.Ended, 0, len(dead))
	for k, leases := range dead {
		ended = append(ended, redisq.Ended{Consumer: k, Leases: leases})
	}
	if errs := o.options.Queue.AckLeasesMany(ctx, ended); cmp.Or(errs...) != nil {
		o.options.Metrics.AcknowledgeErrors.Inc()
		o.options.Log.Debug("acks of dead jobs not taken by Redis; the leases will end", "error", cmp.Or(errs...))
	}
}
