package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Verdict is the conclusion of the ledger about a run.
type Verdict struct {
	Sent      int64 // messages that were planned and sent
	Acked     int64 // answered with the promise to deliver
	Refused   int64 // answered with "nothing was stored"
	Uncertain int64 // without a definite answer
	Receipts  int64 `json:",omitempty"` // of the acked: with 202, from the journal of the broker
	Consumers int
	Expected  int64 // deliveries owed: acked x consumers of the channel
	Delivered int64 // owed deliveries that arrived
	Dead      int64 // owed deliveries that the broker lists as dead letters

	Pending    int64 // owed deliveries still queued or in flight at the broker when the run ended
	Lost       int64 // owed deliveries that did not arrive and for which the broker has no unfinished job
	Duplicates int64 // copies beyond the first
	MaxCopies  int   // of one message at one consumer, the first included
	Corrupted  int64 // body or identity differs from what was sent
	Unpromised int64 // arrived although the broker promised that nothing was stored
	Bonus      int64 // arrived although the answer was uncertain: allowed
	Overtaken  int64 // arrived after a message of lower priority that was due later
	Late       int64
	Strangers  int64 // messages of other runs

	MaxOvertakenMs float64

	RateLimit    int     `json:",omitempty"` // of each push consumer, requests in a window
	RateWindowMs float64 `json:",omitempty"`
	ShortestMs   float64 `json:",omitempty"` // from a request to the one a whole limit later
	OverRate     int64   `json:",omitempty"` // requests beyond the limit
	Keys         int     `json:",omitempty"` // ordering keys that arrived, over all consumers
	OutOfOrder   int64   `json:",omitempty"` // messages that arrived after a later one of their key

	Books int `json:",omitempty"` // consumers of which the broker's books balance
	Askew int `json:",omitempty"` // consumers of which they do not

	Offenders []string `json:",omitempty"` // descriptions, up to 100 of each kind
}

// OK reports whether the promises were kept: no message was lost, corrupted, stored against its
// answer, sent beyond the rate or out of the order of its key. Duplicates are allowed after faults,
// so only a caller that injected no fault may count them as failures.
//
// Pending deliveries prove nothing in either direction: see Proven.
func (v *Verdict) OK() bool {
	return v.Lost == 0 && v.Corrupted == 0 && v.Unpromised == 0 && v.OverRate == 0 && v.OutOfOrder == 0 && v.Askew == 0
}

// Proven reports whether the run knows the end of every owed delivery.
func (v *Verdict) Proven() bool { return v.Pending == 0 }

// A Standing is the broker's state of a job that did not arrive.
type Standing uint8

const (
	StandingGone    Standing = iota // unknown to the broker, or delivered according to it
	StandingDead                    // a dead letter
	StandingPending                 // queued or in flight
)

// Ask returns the standing of a job. It is called only for messages that did not arrive.
type Ask func(consumer int, seq uint64, id ident.ID) Standing

// Reconcile compares the two sides after all producers and consumers have ended. ask may be nil;
// messages that did not arrive then count as lost.
func (l *Ledger) Reconcile(sent uint64, ask Ask) *Verdict {
	v := &Verdict{
		Sent: l.planned.Load(), Acked: l.acked.Load(), Refused: l.refused.Load(), Uncertain: l.uncertain.Load(),
		Consumers: len(l.consumers),
	}
	for i, a := range l.consumers {
		for seq := uint64(0); seq < sent; seq++ {
			if l.Channel(seq) != a.channel {
				continue
			}
			p := l.pages[seq/pageLen].Load()
			if p == nil {
				continue
			}
			got := a.has(l.local(seq))
			switch state := p.state[seq%pageLen]; {
			case state == stateAcked && got:
				v.Expected++
				v.Delivered++
			case state == stateAcked:
				v.Expected++
				v.missing(l, i, seq, p.id[seq%pageLen], ask)
			case state == stateRefused && got:
				v.Unpromised++
				if v.Unpromised <= maxListed {
					v.Offenders = append(v.Offenders, fmt.Sprintf("unpromised: sequence %d at consumer %s was answered with a refusal",
						seq, a.name))
				}
			case got:
				v.Bonus++
			}
		}
		a.tell(v)
	}
	return v
}

// missing counts a delivery that did not arrive.
func (v *Verdict) missing(l *Ledger, consumer int, seq uint64, id ident.ID, ask Ask) {
	standing := StandingGone
	if ask != nil {
		standing = ask(consumer, seq, id)
	}
	switch standing {
	case StandingDead:
		v.Dead++
	case StandingPending:
		v.Pending++
	default:
		v.Lost++
		if v.Lost <= maxListed {
			v.Offenders = append(v.Offenders, fmt.Sprintf("lost: message %s, sequence %d, consumer %s", l.label(seq, id), seq,
				l.consumers[consumer].name))
		}
	}
}

// tell adds the findings that were recorded while deliveries arrived.
func (a *account) tell(v *Verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v.Corrupted += a.corrupt.Load()
	v.Overtaken += a.overtaken.Load()
	v.Late += a.late.Load()
	v.Strangers += a.strangers.Load()
	v.MaxOvertakenMs = max(v.MaxOvertakenMs, float64(a.maxOvertaken.Load())/1e6)
	for _, what := range a.bad {
		v.Offenders = append(v.Offenders, "corrupted: consumer "+a.name+", "+what)
	}
	seqs := make([]uint64, 0, len(a.copies))
	for seq, n := range a.copies {
		v.Duplicates += int64(n)
		v.MaxCopies = max(v.MaxCopies, n+1)
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs[:min(len(seqs), maxListed)] {
		v.Offenders = append(v.Offenders, fmt.Sprintf("duplicate: sequence %d arrived %d times at consumer %s", seq,
			a.copies[seq]+1, a.name))
	}
}

// Problems describes the broken promises, empty if there are none.
func (v *Verdict) Problems() string {
	var out []string
	add := func(n int64, what string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(v.Lost, "lost")
	add(v.Pending, "pending")
	add(v.Corrupted, "corrupted")
	add(v.Unpromised, "delivered although refused")
	add(v.Duplicates, "duplicated")
	add(v.Overtaken, "out of priority order")
	add(v.OverRate, "beyond the rate")
	add(v.OutOfOrder, "out of the order of their key")
	return strings.Join(out, ", ")
}

func (l *Ledger) label(seq uint64, id ident.ID) string {
	switch {
	case !id.IsZero():
		return id.String()
	case l.key != nil:
		return l.key(seq)
	default:
		return "of unknown ID"
	}
}
