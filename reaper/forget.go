package reaper

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// The keys of a deleted consumer are removed from Redis by every broker. What is under way at
// that time may make some of them again: a broker that has not noticed the deletion, a delivery
// that fails and waits for its retry. So they are removed again after the longest attempt.

// forgetAfter are the ages of a deletion at which the keys are removed. By the first one every
// broker has noticed it, and by the last one every attempt has ended.
var forgetAfter = [...]time.Duration{3 * time.Second, time.Minute, 70 * time.Minute}

const (
	forgetTick = time.Second
	// forgetAtOnce bounds the consumers of one round.
	forgetAtOnce = 100
)

// departed are deleted consumers whose keys are still to be removed.
type departed struct {
	mu sync.Mutex
	at map[uint32]int64 // consumer -> when its keys were removed last, Unix ms; 0: never
}

// learn notes a deleted consumer. The catalogue calls it. After the store was restored from a
// backup, a new consumer may get the number of one that was lost: its keys stay.
func (r *Reaper) learn(k *durable.Consumer) {
	if !k.Deleted() {
		r.departed.mu.Lock()
		defer r.departed.mu.Unlock()
		delete(r.departed.at, k.No)
		return
	}
	r.drop(k.No)
	r.departed.mu.Lock()
	defer r.departed.mu.Unlock()
	if r.departed.at == nil {
		r.departed.at = map[uint32]int64{}
	}
	r.departed.at[k.No] = 0
}

// drop ends all work on a consumer.
func (a *Worklist) drop(consumer uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.scanStates, consumer)
	delete(a.watch, consumer)
	delete(a.resting, consumer)
}

// deleted reports whether the copy of the catalogue shows the consumer as deleted.
func (r *Reaper) deleted(consumer uint32) bool {
	k := r.Catalogue.ConsumerByNo(consumer)
	return k != nil && k.Deleted()
}

func (r *Reaper) forgetLoop(ctx context.Context) {
	r.rounds(ctx, forgetTick, "keys of deleted consumers cannot be removed from Redis; the reaper tries again",
		r.forgetDue)
}

// forgetDue removes the keys of consumers whose deletion has reached the next age.
func (r *Reaper) forgetDue(ctx context.Context) error {
	now := r.Cluster.NowMs()
	for _, no := range r.dueToForget(now) {
		if err := r.Queue.Forget(ctx, no); err != nil {
			return err
		}
		r.drop(no)
		k := r.Catalogue.ConsumerByNo(no)
		r.departed.mu.Lock()
		if _, still := r.departed.at[no]; !still {
			r.departed.mu.Unlock()
			continue
		}
		r.departed.at[no] = now
		if now >= k.StateMs+forgetAfter[len(forgetAfter)-1].Milliseconds() {
			delete(r.departed.at, no)
		}
		r.departed.mu.Unlock()
	}
	return nil
}

func (r *Reaper) dueToForget(nowMs int64) (due []uint32) {
	r.departed.mu.Lock()
	defer r.departed.mu.Unlock()
	for no, last := range r.departed.at {
		k := r.Catalogue.ConsumerByNo(no)
		for _, age := range forgetAfter {
			if at := k.StateMs + age.Milliseconds(); last < at && at <= nowMs {
				due = append(due, no)
				break
			}
		}
		if len(due) == forgetAtOnce {
			break
		}
	}
	return due
}
