//go:build unix

package chaos

import (
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// began is when the campaigns of these tests begin.
var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return began.Add(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
}

func idNo(n int64) (id ident.ID) {
	id[5], id[9] = 1, byte(n)
	return id
}

// A story is evidence in the making: message n was sent at second n, to channel 0,
// whose consumers are 0 and 1, and all went well.
type story struct{ *Evidence }

func newCase(messages int64) story {
	p := newPlan(1, 1)
	e := &Evidence{Plan: p, Sent: map[int64]*Sent{}, Jobs: make([]Outcomes, len(p.Consumers))}
	for k := range e.Jobs {
		e.Jobs[k] = Outcomes{Delivered: map[ident.ID]bool{}, Dead: map[ident.ID]bool{}, Listed: map[ident.ID]bool{},
			Failed: map[failure][]failedDelivery{}}
	}
	c := story{e}
	for n := int64(1); n <= messages; n++ {
		c.send(n, Try{Verdict: acked, Status: 201})
		c.store(n)
		for k := range 2 {
			c.arrive(k, n, 1, float64(n)+0.1)
			c.Jobs[k].Delivered[idNo(n)] = true
		}
	}
	return c
}

func (c story) send(n int64, tries ...Try) {
	for i := range tries {
		tries[i].Sent, tries[i].Answered = at(float64(n)), at(float64(n)+0.01)
	}
	c.Sent[n] = &Sent{Seq: n, Hash: "hash", Posts: max(len(tries), 1), Tries: tries}
}

func (c story) store(n int64) {
	c.Stored = append(c.Stored, Stored{Seq: n, ID: idNo(n), Audience: 2, Hash: "hash"})
}

// arrive adds a delivery that is answered with success 10 ms later.
func (c story) arrive(k int, n int64, attempt int, second float64) *Arrival {
	c.Arrivals = append(c.Arrivals, Arrival{Consumer: k, Seq: n, Hash: "hash", Attempt: attempt,
		Job: idNo(n).Job(k).String(), Message: idNo(n).String(),
		Broker: "broker-0", Asked: at(second), At: at(second), Promised: true, OK: true, OKAt: at(second + 0.01)})
	return &c.Arrivals[len(c.Arrivals)-1]
}

// pulled makes message 2 a pull consumer's, who took it as attempt 2 and got it as the
// given attempt, from the given broker, so long after broker-1 woke up.
func (c story) pulled(attempt int, broker string, after float64) {
	c.Plan.Consumers[0].Does = batched
	c.Arrivals[2].Attempt = 2
	c.fault(Fault{Kind: "broker paused", Delays: true, Broker: 1, Channel: unspecified}, 1, 2.5)
	c.arrive(0, 2, attempt, 2.3+after/5).Broker = broker
}

// heldFrom makes message 2 a pull consumer's, who got it some time after it had asked
// for it, worked on it for 3.6 s, and was given it again just before it was through.
func (c story) heldFrom(asked, got float64) {
	c.Plan.Consumers[0].Does = single
	a := &c.Arrivals[2]
	a.Asked, a.At, a.OKAt = at(asked), at(got), at(got+3.6)
	c.arrive(0, 2, 2, got+3.5)
}

// unheard makes message 2 a pull consumer's at the batch routes, whose worker died after
// its report and before the answer. The store has that report since the given second.
func (c story) unheard(stored float64) {
	c.Plan.Consumers[0].Does = batched
	c.Arrivals[2].OK = false
	c.Jobs[0].Ended = map[ident.ID]success{idNo(2): {1, at(stored)}}
}

// leftFor makes message 2 a pull consumer's at the batch routes, whose worker died
// holding it. It was handed out again so many seconds after the claim.
func (c story) leftFor(seconds float64) {
	c.Plan.Consumers[0].Does = batched
	c.unanswered(0, 2)
	c.arrive(0, 2, 2, 2.1+seconds)
}

// diedOnceEach has a client die in every way.
func (c story) diedOnceEach() {
	c.Plan.Deaths = 1
	for _, kind := range deathKinds() {
		c.Deaths = append(c.Deaths, Death{Kind: kind})
	}
	c.Sent[1].Tries[0].Client = batchClient
}

// unanswered turns every arrival of a message at a consumer into a failed one.
func (c story) unanswered(k int, n int64) {
	for i := range c.Arrivals {
		if a := &c.Arrivals[i]; a.Consumer == k && a.Seq == n {
			a.Promised, a.OK = false, false
		}
	}
}

func (c story) fault(f Fault, from, to float64) {
	f.Start, f.End = at(from), at(to)
	c.Faults = append(c.Faults, f)
}

var (
	kill  = Fault{Kind: "broker killed", Repeats: true, Broker: 0, Channel: unspecified}
	away  = Fault{Kind: "MySQL paused", Store: true, Unstored: true, Broker: unspecified, Channel: unspecified}
	empty = Fault{Kind: "Redis emptied", Repeats: true, Broker: unspecified, Channel: unspecified}
)

func TestACampaignInWhichAllWentWellIsKept(t *testing.T) {
	c := newCase(5)
	v := Check(c.Evidence)
	require.True(t, v.OK(), v.Samples)
	require.EqualValues(t, 5, v.Acked)
	require.EqualValues(t, 10, v.Jobs)
	require.EqualValues(t, 10, v.Delivered)
	require.EqualValues(t, 5, v.PostsAcked)
	require.Equal(t, 1.0, v.LongestGap.Seconds())
}

func TestEachViolationIsFoundAndNamed(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		breakIt func(c story)
	}{
		"acknowledged, not stored": {"lost", func(c story) {
			c.Stored = c.Stored[1:]
			delete(c.Jobs[0].Delivered, idNo(1))
			delete(c.Jobs[1].Delivered, idNo(1))
		}},
		"recorded, never delivered": {"lost", func(c story) { c.unanswered(1, 3) }},
		"dead, not listed": {"lost", func(c story) {
			delete(c.Jobs[0].Delivered, idNo(2))
			c.Jobs[0].Dead[idNo(2)] = true
		}},
		"two rows": {"stored twice", func(c story) { c.store(2) }},
		"two times 201": {"stored twice", func(c story) {
			c.send(2, Try{Verdict: acked, Status: 201}, Try{Verdict: acked, Status: 201})
		}},
		"stored without its key":       {"corrupted", func(c story) { c.Sent[2].Identity = byRequestKey }},
		"stored with a key of its own": {"corrupted", func(c story) { c.Stored[2].Key = "?x" }},
		"open at the end": {"stuck", func(c story) {
			delete(c.Jobs[0].Delivered, idNo(4))
			c.unanswered(0, 4)
		}},
		"doubtful, stored, not delivered": {"stuck", func(c story) { c.send(9, Try{Verdict: unknown}); c.store(9) }},
		"another body arrives":            {"corrupted", func(c story) { c.Arrivals[3].Hash = "other" }},
		"another body is stored":          {"corrupted", func(c story) { c.Stored[3].Hash = "other" }},
		"stored for fewer":                {"corrupted", func(c story) { c.Stored[3].Audience = 1 }},
		"under another ID":                {"corrupted", func(c story) { c.Arrivals[3].Message = "other" }},
		"to another channel":              {"corrupted", func(c story) { c.arrive(2, 2, 1, 3) }},
		"refused, stored": {"phantoms", func(c story) {
			c.send(2, Try{Verdict: refused, Status: 503, Code: "overloaded"})
		}},
		"doubtful, not stored, delivered": {"phantoms", func(c story) {
			c.send(9, Try{Verdict: unknown})
			c.arrive(0, 9, 1, 9)
		}},
		"never sent, delivered": {"phantoms", func(c story) { c.arrive(0, 9, 1, 9) }},
		"too many attempts":     {"attempts", func(c story) { c.Arrivals[0].Attempt = maxAttempts + 1 }},
		"outcome of nothing":    {"counter mismatches", func(c story) { c.Jobs[0].Delivered[idNo(77)] = true }},
		"listed, not dead":      {"counter mismatches", func(c story) { c.Jobs[0].Listed[idNo(2)] = true }},
		"books":                 {"counter mismatches", func(c story) { c.Askew = []string{"c: {}"} }},
		"left in Redis":         {"counter mismatches", func(c story) { c.InRedis = 1 }},
		"a repeat in conflict with itself": {"wrong answers", func(c story) {
			c.send(2, Try{Verdict: acked, Status: 201}, Try{Verdict: unknown, Status: 409, Code: "message_id_conflict",
				Client: batchClient})
		}},
		"before its time": {"before their time", func(c story) { c.Sent[2].Due = at(2.2) }},
		"too late before it was": {"wrong answers", func(c story) {
			c.send(9, Try{Verdict: refused, Status: 412, Code: codeTooSoon})
			c.Sent[9].Due = at(12)
		}},
		"too late, never scheduled": {"wrong answers", func(c story) {
			c.send(9, Try{Verdict: refused, Status: 412, Code: codeTooSoon})
		}},
		"internal error": {"wrong answers", func(c story) {
			c.send(2, Try{Verdict: unknown, Status: 500}, Try{Verdict: acked, Status: 201})
		}},
		"a broker died": {"rig notes", func(c story) { c.Notes = []Note{{What: "died by itself"}} }},
		"a batch line, its client then died, not stored": {"lost", func(c story) {
			c.send(9, Try{Verdict: acked, Status: 201, Client: "batch producer, after some answers"})
		}},
		"a batch line, its client then died, not delivered": {"stuck", func(c story) {
			c.send(9, Try{Verdict: acked, Status: 201, Client: "batch producer, after some answers"})
			c.store(9)
		}},
		"half of a request": {"phantoms", func(c story) {
			c.send(9, Try{Verdict: refused, Client: "producer, in its request"})
			c.store(9)
			c.Jobs[0].Delivered[idNo(9)], c.Jobs[1].Delivered[idNo(9)] = true, true
			c.arrive(0, 9, 1, 9.1)
			c.arrive(1, 9, 1, 9.1)
		}},
		"again, after the death of its worker": {"unexplained duplicates", func(c story) {
			c.unheard(2.2)
			c.arrive(0, 2, 2, 8)
		}},
		"again, its worker and another broker died": {"unexplained duplicates", func(c story) {
			c.unheard(2.2)
			other := kill
			other.Broker = 1
			c.fault(other, 2, 2.5)
			c.arrive(0, 2, 2, 8)
		}},
		"handed out while its dead worker held it": {"leases not kept", func(c story) { c.leftFor(4) }},
		"handed out because its worker died": {"leases not kept", func(c story) {
			c.leftFor(4)
			c.fault(Fault{Kind: "pull workers killed", Broker: unspecified, Channel: unspecified}, 2, 3)
		}},
		"handed out because its broker died": {"leases not kept", func(c story) { c.leftFor(4); c.fault(kill, 2, 3) }},
		"a kind of death that did not come": {"client deaths missing", func(c story) {
			c.diedOnceEach()
			c.Deaths = c.Deaths[1:]
		}},
		"a message for somebody else": {"phantoms", func(c story) {
			c.Sent[2].To = c.Plan.Consumers[1].ID
			delete(c.Jobs[0].Delivered, idNo(2))
		}},
		"a message that the filter left out": {"phantoms", func(c story) {
			c.Plan.Consumers[0].ID = filteredID
			c.Sent[2].Priority, c.Stored[1].Priority = 5, 5
			delete(c.Jobs[0].Delivered, idNo(2))
		}},
		"an outcome for somebody else": {"counter mismatches", func(c story) {
			c.Sent[2].To = c.Plan.Consumers[1].ID
			c.Arrivals = slices.DeleteFunc(c.Arrivals, func(a Arrival) bool { return a.Consumer == 0 && a.Seq == 2 })
		}},
		"taken by a journal that never stored it": {"lost", func(c story) {
			c.send(9, Try{Verdict: acked, Status: 202, Client: singleClient})
		}},
		"no batches": {"client deaths missing", func(c story) {
			c.diedOnceEach()
			c.Sent[1].Tries[0].Client = singleClient
		}},
		"goroutines of dead clients": {"leaks", func(c story) {
			c.Rests = []Rest{{Before: Usage{Goroutines: 90}, After: Usage{Goroutines: 91 + moreGoroutines}}}
		}},
		"connections of dead clients": {"leaks", func(c story) {
			c.Rests = []Rest{{After: Usage{Descriptors: 1 + moreDescriptors}}}
		}},
		"files of dead clients": {"leaks", func(c story) { c.Rests = []Rest{{After: Usage{Files: []string{"spool"}}}} }},
		"a broker panicked":     {"brokers that died by themselves", func(c story) { c.Exits = []Exit{{Code: 2}} }},
		"a broker panicked as it was killed": {"brokers that died by themselves", func(c story) {
			c.Exits = []Exit{{Code: 2, May: endings{Killed: true, Clean: true, GivesUp: true}}}
		}},
		"a broker was killed by another": {"brokers that died by themselves", func(c story) {
			c.Exits = []Exit{{Code: -1, Signal: syscall.SIGKILL, May: endings{Clean: true}}}
		}},
		"a broker ended": {"brokers that died by themselves", func(c story) {
			c.Exits = []Exit{{Code: 0, May: endings{Killed: true}}}
		}},
		"a broker gave up while it ran": {"brokers that died by themselves", func(c story) {
			c.Exits = []Exit{{Code: codeStart, May: endings{Killed: true}}}
		}},
		"again, without a fault": {"unexplained duplicates", func(c story) { c.arrive(0, 2, 2, 3) }},
		"again, another broker died": {"unexplained duplicates", func(c story) {
			other := kill
			other.Broker = 1
			c.fault(other, 2, 2.5)
			c.arrive(0, 2, 2, 3)
		}},
		"again, the broker died later": {"unexplained duplicates", func(c story) {
			c.fault(kill, 20, 21)
			c.arrive(0, 2, 2, 22)
		}},
		"again, the broker died before": {"unexplained duplicates", func(c story) {
			c.fault(kill, 1, 1.5)
			c.arrive(0, 2, 2, 4)
		}},
		"again, MySQL alone was away": {"unexplained duplicates", func(c story) {
			c.fault(away, 2, 8)
			c.arrive(0, 2, 2, 9)
		}},
		"again, another consumer was cut": {"unexplained duplicates", func(c story) {
			c.fault(Fault{Repeats: true, Broker: unspecified, Channel: 1}, 2, 3)
			c.arrive(0, 2, 2, 4)
		}},
		"a late answer, and another broker slept": {"unexplained duplicates", func(c story) { c.pulled(1, "broker-0", 1) }},
		"a late answer, long after the sleep":     {"unexplained duplicates", func(c story) { c.pulled(1, "broker-1", 4) }},
		"a late post of a broker that slept": {"unexplained duplicates", func(c story) {
			c.pulled(1, "broker-1", 1)
			c.Plan.Consumers[0].Does = flaky
		}},
		"within its lease":  {"unexplained duplicates", func(c story) { c.heldFrom(5.8, 5.8) }},
		"not a late answer": {"unexplained duplicates", func(c story) { c.pulled(2, "broker-1", 1) }},
		"more copies than under way": {"unexplained duplicates", func(c story) {
			c.fault(kill, 2.1, 2.2)
			c.arrive(0, 2, 2, 4)
			c.arrive(0, 2, 3, 5)
			c.arrive(0, 2, 4, 6)
		}},
		"refused once and in doubt, twice": {"stored twice", func(c story) {
			c.send(2, Try{Verdict: refused}, Try{Verdict: unknown})
			c.store(2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newCase(5)
			c.breakIt(e)
			v := Check(e.Evidence)
			require.False(t, v.OK())
			require.Positive(t, v.Violations[c.promise], v.Samples)
			require.Len(t, v.Violations, 1, v.Samples)
			require.Contains(t, promises, c.promise)
		})
	}
}

func TestWhatFaultsMayDoIsNoViolation(t *testing.T) {
	for name, c := range map[string]struct {
		reason string // of the one duplicate; empty: there is none
		happen func(c story)
	}{
		"its broker was killed": {"broker killed", func(c story) { c.fault(kill, 2.05, 3); c.arrive(0, 2, 2, 9) }},
		"killed while MySQL was away, before it could store": {"broker killed", func(c story) {
			c.fault(away, 2, 8)
			c.fault(kill, 7.5, 8)
			c.arrive(0, 2, 2, 9)
		}},
		"it came out of a link that was cut": {"link", func(c story) {
			c.fault(Fault{Kind: "link", Repeats: true, Broker: unspecified, Channel: 0}, 1.5, 2.09)
			c.arrive(0, 2, 2, 2.4)
		}},
		"the other broker slept before it answered": {"delayed on its way to the worker", func(c story) {
			c.pulled(1, "broker-1", 1)
		}},
		"Redis forgot it": {"Redis emptied", func(c story) {
			c.fault(empty, 2.2, 2.2)
			c.arrive(0, 2, 1, 2.4)
		}},
		"it answered too late": {"answered too late", func(c story) {
			c.Arrivals[2].OKAt = at(2.1).Add(deliveryTimeout)
			c.arrive(0, 2, 2, 7)
		}},
		"its lease was old when it came": {"answered too late", func(c story) { c.heldFrom(2.1, 5.8) }},
		"Redis forgot it on its way to the worker": {"Redis emptied", func(c story) {
			c.heldFrom(2.1, 5.8)
			c.Arrivals[2].OKAt = at(5.9)
			c.fault(empty, 2.2, 2.2)
		}},
		"the broker had waited long": {"timed out at the broker", func(c story) {
			c.Jobs[0].Failed[failure{idNo(2), 1}] = []failedDelivery{{Took: deliveryTimeout}}
			c.arrive(0, 2, 2, 7)
		}},
		"its worker died in its report": {"", func(c story) {
			c.unheard(9)
			c.Jobs[0].Ended[idNo(2)] = success{2, at(8.02)}
			c.arrive(0, 2, 2, 8)
		}},
		"its worker died after its report, and its broker": {"broker killed", func(c story) {
			c.unheard(2.2)
			c.fault(kill, 2.3, 3)
			c.arrive(0, 2, 2, 8)
		}},
		"its worker died, and its lease ended": {"", func(c story) { c.leftFor(5.1) }},
		"its worker died, and Redis forgot it": {"", func(c story) { c.leftFor(1); c.fault(empty, 2.5, 2.6) }},
		"its worker gave it back, and died":    {"", func(c story) { c.leftFor(1); c.Arrivals[2].GaveBack = true }},
		"its worker died at the single routes": {"", func(c story) { c.leftFor(1); c.Plan.Consumers[0].Does = single }},
		"it was for the other consumer": {"", func(c story) {
			c.Sent[2].To = c.Plan.Consumers[1].ID
			c.Arrivals = slices.DeleteFunc(c.Arrivals, func(a Arrival) bool { return a.Consumer == 0 && a.Seq == 2 })
			delete(c.Jobs[0].Delivered, idNo(2))
		}},
		"every kind of death": {"", func(c story) { c.diedOnceEach() }},
		"a client died in its request and another came": {"", func(c story) {
			c.send(2, Try{Verdict: refused, Client: deaths[0].kind}, Try{Verdict: acked, Status: 201})
		}},
		"a client died before its answer": {"", func(c story) {
			c.send(2, Try{Verdict: unknown, Client: deaths[1].kind}, Try{Verdict: acked, Status: 409, Code: codeDuplicate})
		}},
		"a retry after a failure": {"", func(c story) { c.unanswered(0, 2); c.arrive(0, 2, 2, 4) }},
		"dead and listed": {"", func(c story) {
			delete(c.Jobs[0].Delivered, idNo(2))
			c.Jobs[0].Dead[idNo(2)], c.Jobs[0].Listed[idNo(2)] = true, true
			c.unanswered(0, 2)
		}},
		"scheduled, and at its time": {"", func(c story) { c.Sent[2].Due = at(2.1) }},
		"scheduled for a time that passed": {"", func(c story) {
			c.send(9, Try{Verdict: refused, Status: 412, Code: codeTooSoon})
			c.Sent[9].Due = at(9)
		}},
		"in doubt and absent":             {"", func(c story) { c.send(9, Try{Verdict: unknown}) }},
		"refused, and killed in the next": {"", func(c story) { c.send(2, Try{Verdict: refused}); c.Sent[2].Posts++ }},
		"killed before it knew":           {"", func(c story) { c.send(9) }},
		"refused and absent": {"", func(c story) {
			c.send(9, Try{Verdict: refused, Status: 503, Code: "draining"})
		}},
		"a worker died as it reported": {"", func(c story) { c.Arrivals[2].OK = false }},
		"in doubt, then it was there": {"", func(c story) {
			c.send(2, Try{Verdict: unknown}, Try{Verdict: acked, Status: 409, Code: codeDuplicate})
		}},
		"unavailable while MySQL was away": {"", func(c story) {
			c.fault(away, 8, 9)
			c.send(9, Try{Verdict: refused, Status: 503, Code: "unavailable"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newCase(5)
			c.happen(e)
			v := Check(e.Evidence)
			require.True(t, v.OK(), v.Samples)
			if c.reason != "" {
				require.Equal(t, map[string]int{c.reason: 1}, v.Explained)
			} else {
				require.Empty(t, v.Explained)
			}
		})
	}
}

func TestAvailabilityCountsOnlyWhatShouldHaveWorked(t *testing.T) {
	c := newCase(4)
	c.fault(away, 20, 25)
	c.send(22, Try{Verdict: refused, Status: 503, Code: "unavailable"})
	c.send(40, Try{Verdict: refused, Status: 503, Code: "overloaded"})
	v := Check(c.Evidence)
	require.True(t, v.OK(), v.Samples)
	require.EqualValues(t, 5, v.PostsHealthy)
	require.EqualValues(t, 4, v.PostsAcked)
	require.Equal(t, 36.0, v.LongestGap.Seconds())
	require.Equal(t, 1.0, v.LongestGapHealthy.Seconds())
}

// A client that dies does not wait, so that it has no answer is no failed publish.
func TestADeadClientIsNoFailedPublish(t *testing.T) {
	c := newCase(2)
	c.send(5, Try{Verdict: unknown, Client: deaths[1].kind})
	c.send(6, Try{Verdict: unknown, Client: singleClient})
	v := Check(c.Evidence)
	require.True(t, v.OK(), v.Samples)
	require.EqualValues(t, 3, v.PostsHealthy)
}

func TestOnlyStatedRefusalsAreRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   string
	}{
		{201, "", acked}, {409, "duplicate_message_id", acked}, {200, "replayed", acked}, {409, "message_id_conflict",
			refused}, {400, "invalid_priority", refused},
		{503, "overloaded", refused}, {503, "draining", refused}, {503, "unavailable", refused},
		{503, "outcome_unknown", unknown}, {503, "", unknown}, {500, "internal", unknown}, {502, "", unknown},
	} {
		require.Equal(t, c.want, classify(c.status, c.code), "%d %s", c.status, c.code)
	}
}

func TestADrainThatRebuildsIsProgress(t *testing.T) {
	p := newProgress()
	require.True(t, p.made(100, 90))
	require.False(t, p.made(100, 90), "nothing has changed")
	require.True(t, p.made(100, 0), "Redis knows less")
	require.False(t, p.made(100, 80), "it is rebuilt")
	require.True(t, p.made(99, 99), "a job is over, whatever Redis knows")
	require.True(t, p.made(0, 10))
	require.True(t, p.made(0, 9))
	require.False(t, p.made(1, 0), "more is open")
}
