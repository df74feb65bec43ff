//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// policyCase is a campaign with messages 1, 2, ... to the channel with policies, each sent one second
// after the one before, all with the same ordering key.
func policyCase(messages int64) (story, func(n int64) int64) {
	c := newCase(0)
	seq := func(n int64) int64 { return n * orderingKeys }
	for n := int64(1); n <= messages; n++ {
		c.send(seq(n), Try{Verdict: acked, Status: 201})
		s := c.Sent[seq(n)]
		s.Channel = 4
		s.Tries[0].Sent, s.Tries[0].Answered = at(float64(n)), at(float64(n)+0.01)
	}
	return c, seq
}

// violationsOf are those of one promise after the check of the policies.
func violationsOf(c story, promise string) int {
	k := &checker{e: c.Evidence, v: newVerdict(c.Evidence), deliveries: map[jobKey][]*Arrival{}}
	for i := range c.Arrivals {
		a := &c.Arrivals[i]
		k.deliveries[jobKey{a.Seq, a.Consumer}] = append(k.deliveries[jobKey{a.Seq, a.Consumer}], a)
	}
	k.policies()
	return k.v.Violations[promise]
}

func TestMoreThanTheRateIsFound(t *testing.T) {
	burst := func(n int, from float64) story {
		c, seq := policyCase(1)
		for i := range n {
			c.Arrivals = append(c.Arrivals, Arrival{Consumer: c.Plan.numbered(ratedID), Seq: seq(1),
				At: at(from + float64(i)*0.001)})
		}
		return c
	}
	require.Zero(t, violationsOf(burst(rateLimit, 10), "rates exceeded"))
	c := burst(rateLimit+1, 10)
	require.Equal(t, 1, violationsOf(c, "rates exceeded"))
	c.fault(Fault{Kind: "Redis emptied", Broker: unspecified, Channel: unspecified}, 9, 9.1)
	require.Zero(t, violationsOf(c, "rates exceeded"), "a lost Redis may add one more limit")
	c = burst(2*rateLimit+1, 10)
	c.fault(Fault{Kind: "Redis emptied", Broker: unspecified, Channel: unspecified}, 9, 9.1)
	require.Equal(t, 1, violationsOf(c, "rates exceeded"), "and no two")
}

func TestMessagesOutOfOrderAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second float64 // arrivals
		taken         bool
		want          int
	}{
		"in order":                  {3.1, 3.2, true, 0},
		"the second one first":      {3.2, 3.1, true, 1},
		"the first one was refused": {3.1, 3.2, false, 1},
	} {
		c, seq := policyCase(2)
		k := c.Plan.numbered(orderedID)
		c.Arrivals = []Arrival{{Consumer: k, Seq: seq(1), At: at(tc.first), Promised: tc.taken}, {Consumer: k, Seq: seq(2),
			At: at(tc.second), Promised: true}}
		require.Equal(t, tc.want, violationsOf(c, "out of order"), name)
		if tc.want > 0 { // sent together, their order is not known
			c.Sent[seq(2)].Tries[0].Sent = at(1)
			require.Zero(t, violationsOf(c, "out of order"), name)
		}
	}
}

func TestAPauseThatDoesNotHoldIsFound(t *testing.T) {
	c, seq := policyCase(1)
	c.Pauses = []Pause{{at(10), at(15)}}
	for i, second := range []float64{9.9, 10.5, 15.1} {
		c.Arrivals = append(c.Arrivals, Arrival{Consumer: c.Plan.numbered(pausingID), Seq: seq(1), Job: fmt.Sprint(i),
			At: at(second)})
	}
	require.Zero(t, violationsOf(c, "pauses not kept"))
	c.Arrivals = append(c.Arrivals, Arrival{Consumer: c.Plan.numbered(pausingID), Seq: seq(1),
		At: at(10).Add(holdsWithin + time.Millisecond)})
	require.Equal(t, 1, violationsOf(c, "pauses not kept"))
	c.fault(Fault{Kind: "broker paused", Delays: true, Broker: 1, Channel: unspecified}, 9, 11)
	require.Zero(t, violationsOf(c, "pauses not kept"), "a broker that stood still did not know")
}
