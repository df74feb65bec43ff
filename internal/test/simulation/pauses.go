package simulation

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// hold is people who pause, resume and revive consumers through any broker.
func (w *world) hold() {
	r := draw(w.seed, word("hold"))
	for w.plan.holds && w.faulty() {
		time.Sleep(r.between(20*time.Millisecond, 900*time.Millisecond))
		consumers := w.store.consumers()
		k := consumers[r.below(len(consumers))]
		b, act := w.broker(r.below(w.plan.brokers)), r.below(4)
		if b == nil || !w.faulty() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		switch act {
		case 0:
			_, _ = b.states.Pause(ctx, &k)
		case 1:
			_, _ = b.states.Revive(ctx, &k)
		default:
			_, _ = b.states.Resume(ctx, &k)
		}
		cancel()
	}
}

// unhold makes all consumers active, after the last fault: their jobs must all be there.
func (w *world) unhold() {
	for _, k := range w.store.consumers() {
		w.store.setState(durable.StateChange{ConsumerNo: k.No, To: durable.StateActive, Forget: true,
			From: []durable.ConsumerState{durable.StatePaused, durable.StateDead, durable.StateGone, durable.StateProbing}})
	}
}

// heldAfter is the time after a change of the state from which no request begins: the brokers
// poll the catalogue, and a request travels.
const heldAfter = catalogue.PollInterval + 100*time.Millisecond

// SetConsumerState notes when a state changes. The time of the row says less: after a step back of its server's the
// store's clock stands still, and then catches up.
func (s *store) SetConsumerState(ctx context.Context, c durable.StateChange) (durable.Consumer, bool, error) {
	k, changed, err := s.Store.SetConsumerState(ctx, c)
	if changed {
		s.changed[k.No] = time.Now()
	}
	return k, changed, err
}

// checkHeld checks a request against the state of its consumer (I13). A broker that cannot ask
// the store goes on for as long as it can keep outcomes, so worlds whose store fails are left out.
func (w *world) checkHeld(k durable.Consumer, id ident.ID) {
	if !k.Held() || k.State == durable.StateProbing || w.plan.storeFails() {
		return
	}
	w.store.mu.Lock()
	since := time.Since(w.store.changed[k.No])
	w.store.mu.Unlock()
	if since > heldAfter {
		w.checker.report(id, "I13: consumer %d got a job %s after it was %s", k.No, since, k.State)
	}
}
