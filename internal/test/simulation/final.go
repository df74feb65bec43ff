package simulation

import (
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// unfinished says what is not over yet, "" when everything is: each job delivered
// or dead, and nothing left in Redis.
func (w *world) unfinished() (string, ident.ID) {
	if m := w.store.waiting(); m != nil {
		return fmt.Sprintf("%q still waits for its time", m.Payload), m.ID
	}
	left, id := w.openJob()
	if left != "" {
		return left, id
	}
	if b, found := w.store.expanding(); found {
		return fmt.Sprintf("a bulk is in the state %d at row %d, paused: %t; %s", b.State, b.At.Row, b.Paused, b.Reason), b.ID
	}
	if left = w.replaying(); left != "" {
		return left, none
	}
	if left = w.redriving(); left != "" {
		return left, none
	}
	if e, found := w.store.unanswered(); found {
		return fmt.Sprintf("the exchange with consumer %d is %s after %d tries", e.ConsumerNo, e.State, e.Tries), e.ID
	}
	if left = w.disk.left(); left != "" {
		return left + " (I21)", none
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for consumer, k := range w.server.lanes {
		if w.store.parent(consumer) != 0 {
			continue // what is left of an ended replay is removed later
		}
		if ready, delayed, leased := k.Len(); ready+delayed+leased > 0 {
			return fmt.Sprintf("consumer %d has %d jobs in Redis that are over (I8)", consumer, ready+delayed+leased), none
		}
		if k.Spilled >= 0 {
			return fmt.Sprintf("consumer %d has jobs of priority %d outside the window although none is open", consumer,
				k.Spilled), none
		}
	}
	return "", none
}

// openJob finds a job that is neither delivered nor dead.
func (w *world) openJob() (string, ident.ID) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.look()
	for _, k := range s.consumers() {
		for _, m := range p.of(k.ChannelNo) {
			if !concerns(m.ID, m.Audience, k) {
				continue
			}
			if state := p.state(jobKey{k.No, m.ID}); state.Status != durable.Delivered && state.Status != durable.Dead {
				return fmt.Sprintf("consumer %d has an open job, status %d after %d attempts", k.No, state.Status, state.Attempts),
					m.ID
			}
		}
	}
	return "", none
}

// final checks what only shows when everything is over.
func (w *world) final() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	p, stored := w.store.look(), map[string]*durable.Message{}
	all := w.store.purged
	for _, ch := range w.store.channels() {
		all = slices.Concat(all, p.of(ch.No))
	}
	for _, m := range all {
		if other := stored[string(m.Payload)]; other != nil {
			w.checker.report(m.ID, "I9: %q is stored twice, as %s too", m.Payload, other.ID)
		}
		stored[string(m.Payload)] = m
		if w.byPayload[string(m.Payload)] == nil && !ident.Reserved(w.store.channel(m.ChannelNo).ID) {
			w.checker.report(m.ID, "I3: %q is stored and nobody published it", m.Payload)
		}
	}
	for _, p := range w.published {
		w.compareWithStore(p, stored[p.payload])
	}
	w.checkTurns(stored)
	w.balance()
	w.checkHung()
	w.checkResponses()
	w.checkReplays()
	w.checkRedrives()
	w.checkBulks(stored)
	if c := w.checker; w.plan.calm && c.repeated > 0 {
		c.report(none, "I2: %d duplicates without any fault", c.repeated)
	}
}

// compareWithStore compares what a producer was told of a message with what is stored.
func (w *world) compareWithStore(p *post, m *durable.Message) {
	unknown := false
	for _, t := range p.tries {
		unknown = unknown || t.unknown()
		switch {
		case t.stored() && m == nil:
			w.checker.report(none, "I1: %q was answered %d and is not stored", p.payload, t.status)
		case t.stored() && t.id != m.PublicID() && (p.dueMs == 0 || p.key != ""): // without a key it is that of the schedule
			w.checker.report(m.ID, "I9: %q was answered %d with the location of %s", p.payload, t.status, t.id)
		case t.code == "message_id_conflict":
			w.checker.report(none, "I9: %q was told that its own ID is another message's", p.payload)
		case t.taken():
			w.journalled(p, t, m)
		case t.status == 201:
			w.reached(p, t, m)
		case p.dueMs > 0 && t.code == "schedule_too_soon": // no broker was there earlier
		case w.plan.calm && p.priority <= 3 && t.status != 0 && !t.stored(): // 0: no broker was there yet
			w.checker.report(none, "I10: %q was answered %d %s without any fault", p.payload, t.status, t.code)
		case p.priority > 3 && t.status != 400 && t.status/100 != 5 && t.status != 0:
			w.checker.report(none, "I3: %q has priority %d and was answered %d", p.payload, p.priority, t.status)
		}
		if t.stored() || t.taken() {
			return
		}
	}
	if m != nil && !unknown {
		w.checker.report(m.ID, "I3: %q was refused each time and is stored", p.payload)
	}
}

// reached checks that an acknowledged message reaches every consumer that had
// joined before it was posted.
func (w *world) reached(p *post, t try, m *durable.Message) {
	for _, k := range w.store.consumers() {
		if k.ChannelNo == p.channel && w.joined[k.No] < t.sent && !concerns(m.ID, m.Audience, k) {
			w.checker.report(m.ID, "I1: %q was posted after consumer %d joined, and is for the first %d only", p.payload, k.No,
				m.Audience)
		}
	}
}

// balance counts: messages for a consumer = delivered + dead (I8).
func (w *world) balance() {
	p := w.store.look()
	for _, k := range w.store.consumers() {
		owed := int64(0)
		for _, m := range p.of(k.ChannelNo) {
			if concerns(m.ID, m.Audience, k) {
				owed++
			}
		}
		if delivered, dead := p.ended(k.No); owed != delivered+dead {
			w.checker.report(none, "I8: consumer %d: %d jobs, %d delivered and %d dead", k.No, owed, delivered, dead)
		}
	}
}
