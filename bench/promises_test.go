package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func verdictOn(p *promises) *Verdict {
	v := &Verdict{}
	p.tell(v)
	return v
}

func TestMoreRequestsThanTheRateAllowsBreakThePromise(t *testing.T) {
	p := newPromises(&Config{Policy: list{"rateLimit=3/1s", "timeout=1s"}}, 2)
	second := int64(time.Second)
	for _, at := range []int64{0, 1, 2, second, second + 1, second + 2} {
		p.asked(1, at)
	}
	v := verdictOn(p)
	require.True(t, v.OK())
	require.Zero(t, v.OverRate)
	require.InDelta(t, 1000, v.ShortestMs, 0.001)
	p.asked(1, 2*second-1)
	p.asked(0, 2*second-1) // another consumer
	v = verdictOn(p)
	require.EqualValues(t, 1, v.OverRate)
	require.False(t, v.OK())
	require.Contains(t, v.Problems(), "1 beyond the rate")
}

func TestMessagesOutOfTheOrderOfTheirKeyBreakThePromise(t *testing.T) {
	p := newPromises(&Config{Policy: list{"ordered=true"}, Keys: 2}, 2)
	p.took(0, "a", 5)
	p.took(0, "b", 3)
	p.took(1, "a", 4)
	p.took(0, "a", 6)
	require.True(t, verdictOn(p).OK())
	require.Equal(t, 3, verdictOn(p).Keys)
	p.took(0, "a", 5)
	require.EqualValues(t, 1, verdictOn(p).OutOfOrder)
	require.False(t, verdictOn(p).OK())

	p = newPromises(&Config{Policy: list{"ordered=false"}, Keys: 2}, 1)
	p.took(0, "a", 5)
	p.took(0, "a", 4)
	require.True(t, verdictOn(p).OK(), "nothing was promised")
}
