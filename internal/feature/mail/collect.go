package mail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

// collectShare is the part of the time of an attempt that it may wait for others, as a divisor. Where the rate of the
// consumer is counted anew after the wait, half of the time must be left.
const collectShare = 4

// errUnsent is the reason of an attempt whose mail was not sent because this program failed.
var errUnsent = errors.New("the mail was not sent")

// fits refuses a policy whose attempts would end before the jobs of a mail are collected.
func fits(p *policy.Policy) error {
	if c := p.Collect; c.N > 1 && c.Per > p.Timeout/collectShare {
		return &policy.FieldError{Field: "collect", Problem: fmt.Sprintf(
			"may take at most a quarter of the timeout, which is %v: set timeout to %v or more", p.Timeout,
			collectShare*c.Per)}
	}
	return nil
}

// A mailbox is whose jobs share a mail: those of a consumer, or of a replay of it, to the same addresses. A lane may
// have several targets at once after a change of its consumer.
type mailbox struct {
	consumer uint32
	url      string
}

// A collection is attempts that wait for others to share a mail with. The first one sends it.
type collection struct {
	entries []*entry      // of Sender.mu
	full    chan struct{} // closed when it takes no more
	done    chan struct{} // closed when the entries have their results
}

// collect makes the attempt with those of other jobs that come within a time.
func (t *target) collect(life context.Context, e *entry, deadline time.Time) {
	of := e.a.Policy.Collect
	box := mailbox{e.a.Consumer.No, t.url}
	c, first := t.join(box, e, of.N)
	if !first {
		<-c.done // which the deadline of the first one bounds
		return
	}
	defer close(c.done)
	timer := time.NewTimer(min(of.Per, time.Until(deadline)/collectShare))
	defer timer.Stop()
	select {
	case <-c.full:
	case <-timer.C:
	case <-t.hurry:
	case <-life.Done():
	}
	t.send(life, deadline, t.end(box, c))
}

// join adds an attempt to the open collection, or begins one.
func (s *Sender) join(box mailbox, e *entry, most int) (c *collection, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.open[box]; c == nil {
		c, first = &collection{full: make(chan struct{}), done: make(chan struct{})}, true
		s.open[box] = c
	}
	if c.entries = append(c.entries, e); len(c.entries) >= most {
		delete(s.open, box)
		close(c.full)
	}
	return c, first
}

// end closes a collection to others.
func (s *Sender) end(box mailbox, c *collection) []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[box] == c {
		delete(s.open, box)
	}
	return c.entries
}
