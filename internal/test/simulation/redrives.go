package simulation

import (
	"fmt"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// redriveSome is a person who begins a redrive of what is dead by now. Some are canaries.
func (w *world) redriveSome(consumer uint32, canary bool) {
	r := w.store.createRedriving(durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: consumer},
		Canary: canary})
	w.checker.mu.Lock()
	defer w.checker.mu.Unlock()
	w.checker.redrives[redriveKey{r.ConsumerNo, r.No}] = map[ident.ID]int{}
}

// redriving finds a redrive that is not over: it is running, or does not know what became of a job.
func (w *world) redriving() string {
	for _, r := range w.store.busyRedrivings(0) {
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
	for k, r := range s.redrivings {
		opened := w.checker.redrives[k]
		wentBack := w.checker.olderAt > 0 // then a letter may be opened, and counted, again
		for id, n := range opened {
			if n > 1 && !wentBack {
				w.checker.report(id, "I28: redrive %d of consumer %d has opened the letter %d times", k.no, k.consumer, n)
			}
		}
		if !wentBack && r.Redriven != int64(len(opened)) || r.Redriven != r.Delivered+r.Dead {
			w.checker.report(none, "I28: redrive %d of consumer %d has opened %d letters, and says %d, %d delivered and %d dead",
				k.no, k.consumer, len(opened), r.Redriven, r.Delivered, r.Dead)
		}
		for key, o := range s.dead {
			if r.State == durable.RedriveDone && key.consumer == k.consumer && s.died[key] < r.at &&
				s.state(key).Status == durable.Dead && !o.Forget && !wentBack {
				w.checker.report(key.id, "I28: redrive %d of consumer %d is done and has left the letter", k.no, k.consumer)
			}
		}
	}
}
