package simulation

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// An olderState is what a replica has that misses the last writes of outcomes, or a backup. Messages
// and the catalogue are not in it: one that is lost with the store is lost.
type olderState struct {
	putBack map[string]func() // by table
	clock   durable.Clock
}

// outcomeTables are the tables of an olderState.
var outcomeTables = []string{"deliveries", "open_jobs", "dead_jobs", "dead_groups", "redrives", "redrivings",
	"redriving_jobs", "attempts", "marks", "books", "nodes"}

// older copies the state.
func (s *store) older() *olderState {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &olderState{putBack: map[string]func(){}, clock: must(s.Clock(context.Background()))}
	for _, table := range outcomeTables {
		o.putBack[table] = s.keep(table, "")
	}
	return o
}

// goBack restores a state, and returns the jobs that are open again. A state in which no broker has
// written its lease since is not an older one.
func (s *store) goBack(o *olderState) (opened []jobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || must(s.Clock(context.Background())).Beat == o.clock.Beat {
		return nil
	}
	before := s.jobs()
	for _, table := range outcomeTables {
		s.write(`DELETE FROM ` + table)
		o.putBack[table]()
	}
	s.write(`UPDATE clock SET beat = ?, history = ?`, o.clock.Beat, o.clock.History)
	after := s.jobs()
	for k, status := range before {
		if status != durable.Waiting && after[k] != durable.Delivered {
			opened = append(opened, k)
		}
	}
	return opened
}

// jobs returns the status of each job of each consumer. Call it with mu held.
func (s *store) jobs() map[jobKey]durable.JobStatus {
	out, p := map[jobKey]durable.JobStatus{}, s.look()
	for _, k := range s.consumers() {
		for _, m := range p.of(k.ChannelNo) {
			key := jobKey{k.No, m.ID}
			out[key] = p.state(key).Status
		}
	}
	return out
}

// storeWentBack records jobs that may be given out again, whatever became of them.
func (c *checker) storeWentBack(opened []jobKey) {
	c.disturb(0, c.w.now(), c.w.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.olderAt = c.w.now()
	for _, t := range c.jobs { // an attempt of any of them may be forgotten
		t.reopened++
		t.opened, t.purgedAt = c.w.now(), 0
	}
	for _, k := range opened {
		c.trace(k).storedAt = 0
	}
}

// wentBackOnce reports whether the store went back in this run.
func (c *checker) wentBackOnce() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.olderAt > 0
}

// outcomesLost reports whether the store went back while a request may have been under way.
func (c *checker) outcomesLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.olderAt > 0 && c.w.now()-c.olderAt < 10*time.Second
}
