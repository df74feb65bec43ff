package simulation

import (
	"context"
	"fmt"
	"math"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// redriveSome is a person who begins a redrive of what is dead by now. Some are canaries.
func (w *world) redriveSome(consumer uint32, canary bool) {
	s := w.store
	r, err := within(s, func(ctx context.Context) (durable.Redriving, error) {
		r, err := s.CreateRedriving(ctx, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: consumer},
			Canary: canary}, nil)
		s.events++
		s.asked[redriveKey{consumer, r.No}] = s.events
		return r, err
	})
	if err != nil {
		return // the consumer has too many
	}
	w.checker.mu.Lock()
	defer w.checker.mu.Unlock()
	w.checker.redrives[redriveKey{r.ConsumerNo, r.No}] = map[ident.ID]int{}
}

// redriving finds a redrive that is not over: it is running, or does not know what became of a job.
func (w *world) redriving() string {
	for _, r := range w.store.redrives() { // by the counts: the store may forget that one is busy
		if r.State != durable.RedriveRunning && r.Redriven <= r.Delivered+r.Dead {
			continue
		}
		return fmt.Sprintf("redrive %d of consumer %d is %s, has opened %d jobs and knows of %d delivered and %d dead", r.No,
			r.ConsumerNo, r.State, r.Redriven, r.Delivered, r.Dead)
	}
	return ""
}

// redrivenBy records that a redrive has opened a job.
func (c *checker) redrivenBy(k redriveKey, id ident.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.redrives[k] == nil { // it was created after the state to which the store went back
		c.redrives[k] = map[ident.ID]int{}
	}
	c.redrives[k][id]++
}

// checkRedrives checks that a redrive has opened each letter at most once, that its counts are those of
// the jobs that it has opened, and that it leaves none out when it is done (I28).
func (w *world) checkRedrives() {
	s := w.store
	p, wentBack := s.look(), w.checker.wentBackOnce() // then a letter may be opened, and counted, again
	for _, r := range s.redrives() {
		k := redriveKey{r.ConsumerNo, r.No}
		opened := w.checker.redrives[k]
		for id, n := range opened {
			if n > 1 && !wentBack {
				w.checker.report(id, "I28: redrive %d of consumer %d has opened the letter %d times", k.no, k.consumer, n)
			}
		}
		if !wentBack && r.Redriven != int64(len(opened)) || r.Redriven != r.Delivered+r.Dead {
			w.checker.report(none, "I28: redrive %d of consumer %d has opened %d letters, and says %d, %d delivered and %d dead",
				k.no, k.consumer, len(opened), r.Redriven, r.Delivered, r.Dead)
		}
		for key, at := range s.died {
			j := p.state(key)
			if r.State == durable.RedriveDone && key.consumer == k.consumer && at < s.asked[k] &&
				j.Status == durable.Dead && !j.Discarded && !wentBack {
				w.checker.report(key.id, "I28: redrive %d of consumer %d is done and has left the letter", k.no, k.consumer)
			}
		}
	}
}

// redrives returns all redrives of all consumers.
func (s *store) redrives() (out []durable.Redriving) {
	for _, k := range s.consumers() {
		out = append(out, must(s.Redrivings(context.Background(), k.No, math.MaxUint32, 1000))...)
	}
	return out
}
