package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An olderState is what a replica has that misses the last writes of outcomes, or a backup. Messages
// are not in it: one that is lost with the store is lost.
type olderState struct {
	deliveries, open, dead map[jobKey]durable.Outcome
	redriven               map[jobKey]int64
	counted, ended         map[jobKey]counts
	redrivings             map[redriveKey]*storedRedrive
	attempts               map[attemptKey]bool
	marks                  map[uint32]ident.ID
	nodes                  []durable.Node
	beat, history          int64
}

// older copies the state.
func (s *store) older() *olderState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &olderState{deliveries: maps.Clone(s.deliveries), open: maps.Clone(s.open), dead: maps.Clone(s.dead),
		redriven: maps.Clone(s.redriven), counted: maps.Clone(s.counted), ended: maps.Clone(s.ended),
		attempts: maps.Clone(s.attempts), marks: maps.Clone(s.marks), nodes: slices.Clone(s.nodes), beat: s.beat,
		history: s.history, redrivings: cloneRedrives(s.redrivings)}
}

func cloneRedrives(all map[redriveKey]*storedRedrive) map[redriveKey]*storedRedrive {
	out := map[redriveKey]*storedRedrive{}
	for k, r := range all {
		out[k] = r.clone()
	}
	return out
}

// goBack restores a state, and returns the jobs that are open again. A state in which no broker has
// written its lease since is not an older one.
func (s *store) goBack(o *olderState) (opened []jobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || s.beat == o.beat {
		return nil
	}
	for _, part := range []map[jobKey]durable.Outcome{s.deliveries, s.dead, s.open} {
		for k := range part {
			opened = append(opened, k)
		}
	}
	s.deliveries, s.open, s.dead, s.redriven = maps.Clone(o.deliveries), maps.Clone(o.open), maps.Clone(
		o.dead), maps.Clone(o.redriven)
	s.counted, s.ended = maps.Clone(o.counted), maps.Clone(o.ended)
	s.redrivings = cloneRedrives(o.redrivings)
	s.attempts, s.marks, s.nodes = maps.Clone(o.attempts), maps.Clone(o.marks), slices.Clone(o.nodes)
	s.beat, s.history = o.beat, o.history
	return slices.DeleteFunc(opened, func(k jobKey) bool { return s.state(k).Status == durable.Delivered })
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

// outcomesLost reports whether the store went back while a request may have been under way.
func (c *checker) outcomesLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.olderAt > 0 && c.w.now()-c.olderAt < 10*time.Second
}
