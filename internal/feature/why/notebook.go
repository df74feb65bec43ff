package why

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

const (
	// flushEvery is the interval at which facts are written, flushRows the most rows each time: with more
	// consumers than that, each waits for its turn.
	flushEvery = time.Second
	flushRows  = 500
	// flushWithin bounds a write, and the last one of a broker that stops.
	flushWithin = 2 * time.Second
)

// A FactStore keeps facts: the durable store.
type FactStore interface {
	KeepFacts(ctx context.Context, facts []durable.Fact) error
}

// A Notebook has what the attempts of this broker have shown last, by consumer. It is safe for concurrent
// use.
type Notebook struct {
	store   FactStore
	account func(no uint32) (consumer uint32, known bool)
	log     *slog.Logger

	mu      sync.Mutex
	facts   map[uint32]*durable.Fact
	changed []uint32 // whose facts are not written, the one that waits longest first
	waits   map[uint32]bool
}

// NewNotebook returns a notebook. account returns the consumer that a number counts for, which for a
// replay is another one; known is false where that is deleted.
func NewNotebook(store FactStore, account func(no uint32) (consumer uint32, known bool),
	log *slog.Logger) *Notebook {
	return &Notebook{store: store, account: account, log: log, facts: map[uint32]*durable.Fact{},
		waits: map[uint32]bool{}}
}

// Note takes what outcomes show that were stored. It is called once for each batch of outcomes, so the
// lock costs a message nothing.
func (n *Notebook) Note(outcomes []durable.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range outcomes {
		o := &outcomes[i]
		if o.Kind == durable.OutcomeGivenBack || o.Kind == durable.OutcomeDead && !o.Reason.Attempted() {
			continue
		}
		f := n.facts[o.ConsumerNo]
		if f == nil {
			f = &durable.Fact{ConsumerNo: o.ConsumerNo}
			n.facts[o.ConsumerNo] = f
		}
		if o.AtMs >= f.AttemptMs {
			f.AttemptMs, f.StatusCode, f.Error = o.AtMs, o.StatusCode, o.Error
		}
		if o.Kind == durable.OutcomeDelivered {
			f.SuccessMs = max(f.SuccessMs, o.AtMs)
		}
		n.changes(o.ConsumerNo)
	}
}

// claimEvery is the least time between two writes of a consumer for the claims of its workers alone.
const claimEvery = 10 * time.Second

// Claimed takes the time of the last claim of a consumer, Unix ms. last says that the broker stops: no later
// time is told.
func (n *Notebook) Claimed(consumer uint32, ms int64, last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.facts[consumer]
	if f == nil {
		f = &durable.Fact{ConsumerNo: consumer}
		n.facts[consumer] = f
	}
	if ms <= f.ClaimMs || !last && ms-f.ClaimMs < claimEvery.Milliseconds() {
		return
	}
	f.ClaimMs = ms
	n.changes(consumer)
}

// changes notes that the facts of a consumer are to be written, with mu held.
func (n *Notebook) changes(consumer uint32) {
	if !n.waits[consumer] {
		n.waits[consumer] = true
		n.changed = append(n.changed, consumer)
	}
}

// Of returns the facts that this broker knows of a consumer.
func (n *Notebook) Of(consumer uint32) durable.Fact {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.facts[consumer]; f != nil {
		return *f
	}
	return durable.Fact{ConsumerNo: consumer}
}

// Run writes facts until ctx ends, and then those that are left.
func (n *Notebook) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
			defer cancel()
			for n.waiting() && n.flush(last) == nil {
			}
			return
		case <-tick.C:
		}
		err := n.flush(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			n.log.Warn("the last attempts of consumers cannot be stored; this broker knows its own ones", "error", err)
		}
		failing = err != nil
	}
}

func (n *Notebook) waiting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.changed) > 0
}

// flush writes the facts of the consumers that have waited longest. Those of deleted consumers are
// dropped.
func (n *Notebook) flush(ctx context.Context) error {
	batch := n.take()
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	err := n.store.KeepFacts(ctx, batch)
	if err != nil {
		n.again(batch)
	}
	return err
}

// take removes up to flushRows consumers from those that wait. A replay counts for its consumer.
func (n *Notebook) take() []durable.Fact {
	n.mu.Lock()
	defer n.mu.Unlock()
	numbers := n.changed[:min(len(n.changed), flushRows)]
	touched := make([]uint32, 0, len(numbers))
	for _, no := range numbers {
		delete(n.waits, no)
		f := n.facts[no]
		consumer, known := n.account(no)
		if f == nil || !known {
			delete(n.facts, no)
			continue
		}
		if consumer != no {
			delete(n.facts, no)
			f.ConsumerNo = consumer
			if own := n.facts[consumer]; own != nil {
				*f = own.Newer(*f)
			}
			n.facts[consumer] = f
		}
		touched = append(touched, consumer)
	}
	n.changed = slices.Clone(n.changed[len(numbers):])
	slices.Sort(touched)
	touched = slices.Compact(touched)
	batch := make([]durable.Fact, len(touched))
	for i, no := range touched {
		batch[i] = *n.facts[no]
	}
	return batch
}

// Forget drops the facts of a consumer that was deleted.
func (n *Notebook) Forget(consumer uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.facts, consumer)
}

// again puts facts that could not be written back.
func (n *Notebook) again(batch []durable.Fact) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range batch {
		if no := batch[i].ConsumerNo; n.facts[no] != nil {
			n.changes(no)
		}
	}
}
