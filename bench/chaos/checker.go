//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Check compares the evidence with the promises. It sorts the arrivals and adds the store's
// outcomes of reports without an answer.
func Check(e *Evidence) *Verdict {
	c := &checker{e: e, v: newVerdict(e), rows: map[int64][]*Stored{}, byID: map[ident.ID]*Stored{}}
	c.exits() // first, since such a violation may cause the others
	c.index()
	c.unanswered()
	for _, s := range e.Sent {
		c.message(s)
	}
	for i := range e.Arrivals {
		c.arrival(&e.Arrivals[i])
	}
	c.jobs()
	c.duplicates()
	c.leases()
	c.policies()
	c.answers()
	c.replays()
	c.deaths()
	c.rests()
	c.counters()
	c.availability()
	c.neighbours()
	for _, n := range e.Notes {
		c.v.broken("rig notes", "%s: %s, at %s", n.What, n.Detail, n.At.Format(time.RFC3339Nano))
	}
	return c.v
}

type checker struct {
	e    *Evidence
	v    *Verdict
	rows map[int64][]*Stored // by sequence
	byID map[ident.ID]*Stored
	// deliveries are the arrivals of each job, in order of time.
	deliveries map[jobKey][]*Arrival
}

// A jobKey identifies a job from the outside, by message and consumer.
type jobKey struct {
	seq      int64
	consumer int
}

func (c *checker) index() {
	for i := range c.e.Stored {
		s := &c.e.Stored[i]
		c.rows[s.Seq] = append(c.rows[s.Seq], s)
		c.byID[s.ID] = s
	}
	sort.SliceStable(c.e.Arrivals, func(i, j int) bool { return c.e.Arrivals[i].At.Before(c.e.Arrivals[j].At) })
	c.deliveries = make(map[jobKey][]*Arrival, len(c.e.Arrivals))
	for i := range c.e.Arrivals {
		a := &c.e.Arrivals[i]
		k := jobKey{a.Seq, a.Consumer}
		c.deliveries[k] = append(c.deliveries[k], a)
	}
}

// verdictOf combines the answers to all posts of a message. A success is final. A post without a
// definite answer makes the message uncertain, and so does the death of a producer that did not
// know the outcome, whatever the answers to earlier posts were.
func verdictOf(s *Sent) string {
	verdict := refused
	if len(s.Tries) < s.Posts {
		verdict = unknown
	}
	for _, t := range s.Tries {
		if t.Verdict == acked {
			return acked
		}
		if t.Verdict == unknown {
			verdict = unknown
		}
	}
	return verdict
}

// message compares the answers to a producer with the stored message.
func (c *checker) message(s *Sent) {
	v, rows := c.v, c.rows[s.Seq]
	created, journalled := 0, false
	for _, t := range s.Tries {
		journalled = journalled || t.Status == 202 && t.Client != bulkClient
		if t.Status == 201 && t.Code != codeReplayed {
			created++
		}
		if t.Client == batchClient && t.Status > 0 {
			v.BatchLines++
		}
		stored := t.Status == 409 && t.Code == codeDuplicate
		if t.Status >= 400 && t.Status < 500 && !stored && !s.late(t) || t.Status == 500 {
			v.broken("wrong answers", "message %d: status %d %s to %s", s.Seq, t.Status, t.Code, t.Client)
		}
	}
	if created > 1 || len(rows) > 1 {
		v.broken("stored twice", "message %d: %d rows, %d times 201", s.Seq, len(rows), created)
	}
	switch verdictOf(s) {
	case acked:
		v.Acked++
		if journalled {
			v.Journalled++
		}
		if len(rows) == 0 {
			v.broken("lost", "message %d of %s was acknowledged and is not stored", s.Seq, c.e.Plan.Channels[s.Channel])
		}
	case refused:
		v.Refused++
		if len(rows) > 0 {
			v.broken("phantoms", "message %d was refused and is stored: %s", s.Seq, describe(s.Tries))
		}
	default:
		v.Unknown++
		if len(rows) > 0 {
			v.UnknownStored++
		}
	}
	for _, r := range rows {
		if r.Hash != s.Hash || r.Channel != s.Channel || r.Priority != s.Priority || r.Audience != c.audience(s.Channel) ||
			!s.identity().stored(s.Seq, r.Key) {
			v.broken("corrupted", "message %d is stored as %+v, was sent as %s to %d with priority %d", s.Seq, *r, s.Hash,
				s.Channel, s.Priority)
		}
	}
}

// late reports whether the answer says that the time of a scheduled message has passed. A post
// that waited for a fault to end comes too late. The broker decides by the clock of the store, which
// it may take to be ahead after an answer that was slow.
func (s *Sent) late(t Try) bool {
	return !s.Due.IsZero() && t.Code == codeTooSoon && t.Answered.After(s.Due.Add(-clockError))
}

// identity is the identity of the stored message. The Idempotency-Key of a scheduled message
// belongs to its schedule.
func (s *Sent) identity() identity {
	if s.Identity == byRequestKey && !s.Due.IsZero() {
		return noIdentity
	}
	return s.Identity
}

// stored reports whether a message of that identity is stored under this key.
func (i identity) stored(seq int64, key string) bool {
	return (i == byMessageID) == (key == keyOf(seq) || strings.HasSuffix(key, "/"+keyOf(seq))) &&
		(i == byRequestKey) == strings.HasPrefix(key, "?")
}

func (c *checker) audience(channel int) (n int) {
	for _, k := range c.e.Plan.Consumers {
		if k.Channel == channel {
			n++
		}
	}
	return n
}

func describe(tries []Try) (out []string) {
	for _, t := range tries {
		out = append(out, fmt.Sprintf("%s %d %s from broker %d to %s at %s", t.Verdict, t.Status, t.Code, t.Broker, t.Client,
			t.Answered.Format(clock)))
	}
	return out
}

const (
	// clockError is how far ahead a broker may take the clock of the store to be, and clockStep the
	// precision of the time of a scheduled message.
	clockError, clockStep = 2 * time.Second, time.Millisecond
	// clock is the format of times in reports; times of journals have microseconds.
	clock = "15:04:05.000000"
)

// arrival checks one delivery on its own.
func (c *checker) arrival(a *Arrival) {
	v := c.v
	v.Deliveries++
	s := c.e.Sent[a.Seq]
	if s == nil {
		v.broken("phantoms", "%s got a message that no producer sent: sequence %d, job %s, at %s", c.name(a.Consumer), a.Seq,
			a.Job, a.At.Format(clock))
		return
	}
	if len(c.rows[a.Seq]) == 0 && verdictOf(s) != acked { // acked ones are reported as lost
		v.broken("phantoms", "%s got message %d, which is not stored", c.name(a.Consumer), a.Seq)
	}
	if a.Hash != s.Hash || s.Channel != c.e.Plan.Consumers[a.Consumer].Channel {
		v.broken("corrupted", "%s got message %d of channel %d with hash %s, not %s", c.name(a.Consumer), a.Seq, s.Channel,
			a.Hash, s.Hash)
	}
	if rows := c.rows[a.Seq]; len(rows) == 1 && a.Message != s.publicID(rows[0]) {
		v.broken("corrupted", "%s got message %d under the ID %s, not %s", c.name(a.Consumer), a.Seq, a.Message,
			s.publicID(rows[0]))
	}
	if !s.Due.IsZero() {
		v.Scheduled++
		if a.At.Before(s.Due.Add(-clockStep)) {
			v.broken("before their time", "%s got message %d at %s, scheduled for %s", c.name(a.Consumer), a.Seq,
				a.At.Format(clock), s.Due.Format(clock))
		}
	}
	if s.Channel == c.e.Plan.Consumers[a.Consumer].Channel && !c.e.Plan.concerns(a.Consumer, s) {
		v.broken("phantoms", "%s got message %d, which is not for it: priority %d, addressed to %q", c.name(a.Consumer),
			a.Seq, s.Priority, s.To)
	}
	k := &c.e.Plan.Consumers[a.Consumer]
	if a.Attempt < 1 || a.Attempt > k.attempts() && !k.Does.pull() {
		v.broken("attempts", "%s got message %d as attempt %d of %d", c.name(a.Consumer), a.Seq, a.Attempt, k.attempts())
	}
}

// publicID is the ID under which consumers get a message that is stored as row. Where each producer has
// IDs of its own, the stored key names the producer, and consumers get the ID of the broker.
func (s *Sent) publicID(row *Stored) string {
	if s.Identity == byMessageID && row.Key == keyOf(s.Seq) {
		return row.Key
	}
	return row.ID.String()
}

func (c *checker) name(consumer int) string { return c.e.Plan.Consumers[consumer].ID }

// jobs checks the jobs of every stored message for each of its consumers.
func (c *checker) jobs() {
	v := c.v
	for i := range c.e.Stored {
		s := &c.e.Stored[i]
		if s.Removed {
			v.Removed++
		}
		for k, consumer := range c.e.Plan.Consumers {
			if consumer.Channel != s.Channel {
				continue
			}
			o := &c.e.Jobs[k]
			if sent := c.e.Sent[s.Seq]; sent != nil && !c.e.Plan.concerns(k, sent) {
				v.LeftOut++
				if o.Delivered[s.ID] || o.Dead[s.ID] {
					v.broken("counter mismatches", "message %d (%s) is not for %s, which has an outcome of it", s.Seq, s.ID, c.name(k))
				}
				continue
			}
			v.Jobs++
			promised := slices.ContainsFunc(c.deliveries[jobKey{s.Seq, k}], func(a *Arrival) bool { return a.Promised })
			switch {
			case o.Delivered[s.ID] && !promised:
				v.broken("lost", "message %d (%s) counts as delivered to %s, which never took it", s.Seq, s.ID, c.name(k))
			case o.Delivered[s.ID]:
				v.Delivered++
			case o.Dead[s.ID] && !o.Listed[s.ID]:
				v.broken("lost", "message %d (%s) is dead for %s and not listed", s.Seq, s.ID, c.name(k))
			case o.Dead[s.ID]:
				v.Dead++
				if promised {
					v.DeadAfterSuccess++
				}
			default:
				v.broken("stuck", "message %d (%s) is open for %s; success seen: %v", s.Seq, s.ID, c.name(k), promised)
			}
		}
	}
}

// counters compares the sums of rows, lists and journals.
func (c *checker) counters() {
	v := c.v
	for k := range c.e.Plan.Consumers {
		o := &c.e.Jobs[k]
		for _, set := range []map[ident.ID]bool{o.Delivered, o.Dead} {
			for id := range set {
				if c.byID[id] == nil {
					v.broken("counter mismatches", "%s has an outcome of %s, which is not a message", c.name(k), id)
				}
			}
		}
		for id := range o.Listed {
			if !o.Dead[id] {
				v.broken("counter mismatches", "%s lists %s as dead, which has no such row", c.name(k), id)
			}
		}
	}
	for _, of := range c.e.Askew {
		v.broken("counter mismatches", "the books do not balance: %s", of)
	}
	if c.e.InRedis > 0 {
		v.broken("counter mismatches", "Redis still knows %d jobs", c.e.InRedis)
	}
}

// exits looks for brokers that ended although the rig had not ended them.
func (c *checker) exits() {
	for i := range c.e.Exits {
		x := &c.e.Exits[i]
		if x.planned() {
			c.v.PlannedExits++
			continue
		}
		c.v.broken("brokers that died by themselves", "%s: %s at %s; its last lines:\n\t%s", x.Process, x.State,
			x.At.Format(clock), strings.Join(x.Last, "\n\t"))
	}
}

// availability sums up how publishing went.
func (c *checker) availability() {
	v := c.v
	away := c.windows(func(f *Fault) bool { return f.Store })
	var successes []time.Time
	first, last := time.Time{}, time.Time{}
	for _, s := range c.e.Sent {
		for _, t := range s.Tries {
			if first.IsZero() || t.Sent.Before(first) {
				first = t.Sent
			}
			if t.Answered.After(last) {
				last = t.Answered
			}
			if t.Verdict == acked {
				successes = append(successes, t.Answered)
			}
			if t.died() && t.Verdict != acked { // it did not wait
				continue
			}
			// a load balancer would skip a broker that is away
			if s.late(t) || away.covers(t.Sent, t.Answered) || t.Status == 0 && t.Verdict == refused {
				continue
			}
			v.PostsHealthy++
			if t.Verdict == acked {
				v.PostsAcked++
			}
		}
	}
	slices.SortFunc(successes, time.Time.Compare)
	before := first
	for _, at := range append(successes, last) {
		if gap := at.Sub(before); gap > v.LongestGap {
			v.LongestGap = gap
		}
		if gap := at.Sub(before); gap > v.LongestGapHealthy && !away.covers(before, at) {
			v.LongestGapHealthy = gap
		}
		before = at
	}
}

// recovery is the time after a fault until publishing counts as healthy again.
const recovery = 3 * time.Second
