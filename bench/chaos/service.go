//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// servedWithin is the time after an attack within which every ordinary publish gets through, its
	// repeats included.
	servedWithin = 10 * time.Second
	// memoryBound is the most memory of a broker, MiB: the sum of the bounds of docs/explain/limits*.md,
	// 768 MiB, and as much garbage.
	memoryBound = 1536
)

// An Attack is all that the neighbours of a campaign did.
type Attack struct {
	Start, End time.Time // zero without neighbours
	Mounted    []Mounted
	Memory     int // the most of a broker, MiB
}

// A Mounted is one attack of one neighbour on one broker.
type Mounted struct {
	Kind       string
	Held       int // connections, requests or messages
	Broker     int
	Start, End time.Time
}

func (e *Evidence) readAttacks(path string) error {
	return readJournal(path, func(kind byte, l *line) {
		if kind == 'G' {
			e.Attack.Mounted = append(e.Attack.Mounted, Mounted{l.text(1), int(l.number(2)), int(l.number(3)), l.time(4),
				l.time(5)})
		}
	})
}

// neighbours checks the service of the ordinary producers during and after an attack. Refusals are
// counted, those later than servedWithin after the attack apart: under pressure a broker may refuse,
// if it says so. What is posted again must get through soon. A kind of attack that held nothing has
// tested nothing.
func (c *checker) neighbours() {
	a := &c.e.Attack
	if a.Start.IsZero() {
		return
	}
	v := c.v
	for _, m := range a.Mounted {
		v.Attacks[m.Kind] += m.Held
	}
	for _, k := range attacks {
		if v.Attacks[k.kind] == 0 {
			v.broken("attacks missing", "no neighbour held anything as %s", k.kind)
		}
	}
	if v.MostMemory = a.Memory; a.Memory > memoryBound {
		v.broken("memory above its bound", "a broker had %d MiB, more than %d", a.Memory, memoryBound)
	}
	faults := c.windows(func(*Fault) bool { return true })
	var during, after []time.Duration
	for _, s := range c.e.Sent {
		if c.service(s) && s.Identity != noIdentity {
			c.served(s)
		}
		for _, t := range s.Tries {
			if t.died() || s.late(t) || t.Status == 0 {
				continue
			}
			took := t.Answered.Sub(t.Sent)
			switch {
			case t.Sent.After(a.End.Add(servedWithin)):
				v.AfterAttack++
				if t.Verdict != acked {
					v.RefusedAfterAttack++
				} else {
					after = append(after, took)
				}
			case t.Sent.After(a.Start) && t.Answered.Before(a.End):
				v.UnderAttack++
				if t.Verdict != acked {
					v.RefusedByAttack[strings.TrimSpace(fmt.Sprintf("%d %s", t.Status, t.Code))]++
				} else if !faults.covers(t.Sent, t.Answered) {
					during = append(during, took)
				}
			}
		}
	}
	if v.AfterAttack == 0 {
		v.broken("publishes not served after the attack", "no publish was answered later than %v after the attack",
			servedWithin)
	}
	v.P99UnderAttack, v.P99AfterAttack = p99(during), p99(after)
}

// service reports whether a living client posted the message after the attack, and went on for so long
// that it could get through.
func (c *checker) service(s *Sent) bool {
	return len(s.Tries) > 0 && !slices.ContainsFunc(s.Tries, func(t Try) bool { return t.died() || s.late(t) }) &&
		s.Tries[0].Sent.After(c.e.Attack.End)
}

// served requires that a message got through soon after it was first posted.
func (c *checker) served(s *Sent) {
	by := s.Tries[0].Sent.Add(servedWithin)
	in := func(t Try) bool { return t.Verdict == acked && !t.Answered.After(by) }
	if !slices.ContainsFunc(s.Tries, in) {
		c.v.broken("publishes not served after the attack", "message %d, first posted %v after the attack: %s",
			s.Seq, s.Tries[0].Sent.Sub(c.e.Attack.End).Round(time.Millisecond), describe(s.Tries))
	}
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// rowsOfAttacks prints what neighbours did and what the ordinary producers felt of it.
func rowsOfAttacks(all []*Verdict, row func(string, func(*Verdict) string), count func(string, func(*Verdict) int64)) {
	kinds := keysOf(all, func(v *Verdict) map[string]int { return v.Attacks })
	if len(kinds) == 0 {
		return
	}
	count("connections, requests and messages of neighbours", func(v *Verdict) int64 { return int64(sum(v.Attacks)) })
	for _, kind := range kinds {
		count("  "+kind, func(v *Verdict) int64 { return int64(v.Attacks[kind]) })
	}
	count("ordinary publishes answered during the attack", func(v *Verdict) int64 { return v.UnderAttack })
	count("  of those, refused", func(v *Verdict) int64 { return int64(sum(v.RefusedByAttack)) })
	for _, answer := range keysOf(all, func(v *Verdict) map[string]int { return v.RefusedByAttack }) {
		count("    "+answer, func(v *Verdict) int64 { return int64(v.RefusedByAttack[answer]) })
	}
	row("  99 % within, without a fault", func(v *Verdict) string {
		return v.P99UnderAttack.Round(time.Millisecond).String()
	})
	count("ordinary publishes answered from 10 s after it on", func(v *Verdict) int64 { return v.AfterAttack })
	count("  of those, refused", func(v *Verdict) int64 { return v.RefusedAfterAttack })
	row("  99 % within", func(v *Verdict) string { return v.P99AfterAttack.Round(time.Millisecond).String() })
	row("most memory of a broker", func(v *Verdict) string { return fmt.Sprintf("%d MiB", v.MostMemory) })
}
