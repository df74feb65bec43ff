//go:build unix

package chaos

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attacked has neighbours attack from second 0 to 3, in every way.
func attacked(messages int64) story {
	c := newCase(messages)
	c.Attack = Attack{Start: at(0), End: at(3), Memory: 300}
	for _, a := range attacks {
		c.Attack.Mounted = append(c.Attack.Mounted, Mounted{Kind: a.kind, Held: 2, Start: at(0), End: at(3)})
	}
	return c
}

// keyed gives a message an ID, so that it is posted again.
func (c story) keyed(n int64) {
	c.Sent[n].Identity = byMessageID
	for i := range c.Stored {
		if c.Stored[i].Seq == n {
			c.Stored[i].Key = keyOf(n)
		}
	}
	for i := range c.Arrivals {
		if c.Arrivals[i].Seq == n {
			c.Arrivals[i].Message = keyOf(n)
		}
	}
}

func TestRefusalsDuringAnAttackAreCountedApart(t *testing.T) {
	c := attacked(20)
	c.send(2, Try{Verdict: refused, Status: 503, Code: "overloaded"}, Try{Verdict: acked, Status: 201})
	c.send(15, Try{Verdict: refused, Status: 503, Code: "overloaded"}, Try{Verdict: acked, Status: 201})
	c.keyed(15)
	c.send(50, Try{Verdict: unknown, Client: deaths[0].kind}) // of a client that dies
	v := Check(c.Evidence)
	require.True(t, v.OK(), v.Samples)
	require.Equal(t, map[string]int{"503 overloaded": 1}, v.RefusedByAttack)
	require.EqualValues(t, 3, v.UnderAttack, "messages 1 and 2")
	require.EqualValues(t, 1, v.RefusedAfterAttack)
	require.Equal(t, 2*len(attacks), sum(v.Attacks))
	require.Equal(t, []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}, []time.Duration{v.P99UnderAttack,
		v.P99AfterAttack})
	var out bytes.Buffer
	require.NoError(t, Print(&out, []*Verdict{v}))
	for _, want := range []string{"503 overloaded", "most memory of a broker", attacks[0].kind} {
		require.Contains(t, out.String(), want)
	}
}

func TestWhatAnAttackMustNotDoIsAViolation(t *testing.T) {
	for name, c := range map[string]struct {
		promise string
		breakIt func(c story)
	}{
		"a message that gets through late": {"publishes not served after the attack", func(c story) {
			c.send(14, Try{Verdict: refused, Status: 503, Code: "overloaded"}, Try{Verdict: acked, Status: 201})
			c.keyed(14)
			c.Sent[14].Tries[1].Answered = at(25)
		}},
		"a message that never gets through": {"publishes not served after the attack", func(c story) {
			c.send(5, Try{Verdict: unknown})
			c.keyed(5)
		}},
		"nothing published after it": {"publishes not served after the attack", func(c story) { c.Attack.End = at(15) }},
		"a kind that held nothing":   {"attacks missing", func(c story) { c.Attack.Mounted[3].Held = 0 }},
		"a broker too large":         {"memory above its bound", func(c story) { c.Attack.Memory = memoryBound + 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := attacked(20)
			c.breakIt(e)
			v := Check(e.Evidence)
			require.Positive(t, v.Violations[c.promise], v.Samples)
			require.Len(t, v.Violations, 1, v.Samples)
			require.Contains(t, promises, c.promise)
		})
	}
}

// Each attack reaches its broker and holds on until it is told to end.
func TestEachAttackHoldsOnUntilItsEnd(t *testing.T) {
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		status := http.StatusOK
		if strings.HasSuffix(r.URL.Path, "/bulk") {
			status = http.StatusAccepted
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(broker.Close)
	p := newPlan(1, 1)
	p.Doors = []string{strings.TrimPrefix(broker.URL, "http://")}
	for _, a := range attacks {
		t.Run(a.kind, func(t *testing.T) {
			t.Parallel()
			journal, err := openJournal(t.TempDir() + "/journal")
			require.NoError(t, err)
			n := newNeighbours(p, journal)
			ctx, cancel := context.WithCancel(t.Context())
			held, begun := 0, make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				n.attack(ctx, attack{a.kind, func(g *neighbour, ctx context.Context) int {
					close(begun)
					held = a.mount(g, ctx)
					return held
				}}, rand.New(rand.NewPCG(1, 1)))
			}()
			<-begun
			select {
			case <-done:
				require.Fail(t, "it ended by itself")
			case <-time.After(2 * time.Second):
			}
			cancel()
			<-done
			require.Positive(t, held)
			require.NoError(t, journal.Close())
		})
	}
}
