package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Thousands of scheduled messages that are due at once delay neither those of another producer, in the
// same channel or in another one, nor those of the same producer in another channel. What waits in a
// paused channel delays nothing.
func TestScheduledMessagesThatAreManyDelayNoOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for ahead := 20 * time.Second; !scheduledBeside(t, p, ahead); ahead *= 2 {
			require.Less(t, ahead, 5*time.Minute, "they are not even accepted")
		}
	})
}

// scheduledBeside reports whether all messages were accepted before their time.
func scheduledBeside(t *testing.T, p *process, ahead time.Duration) bool {
	const many, held = 5000, 700
	paused, greedy, quiet := p.stage(t, "k"), p.stage(t, "k"), p.stage(t, "k")
	p.put("/producer/o", "token", "o-token")
	due := time.Now().Add(ahead)
	if paused.fillAt(due, held) == nil {
		return false
	}
	require.Equal(t, 200, p.do("POST", paused.path("/pause"), "").status)
	all := greedy.fillAt(due, many)
	if all == nil {
		return false
	}
	var others []string
	for _, o := range []struct {
		at       *stage
		producer string
	}{{quiet, "o"}, {greedy, "o"}, {quiet, "p"}} {
		r := o.at.do("POST", o.at.path("/broadcast"), "other", append(tokensOf(o.producer), "X-Broker-Scheduled-For",
			due.Add(50*time.Millisecond).Format(time.RFC3339Nano))...)
		if r.status == 412 {
			return false
		}
		require.Equal(t, 201, r.status, r.body)
		others = append(others, r.header.Get("Location"))
	}
	eventually(t, "all to be through", func() bool { return greedy.counts().Counts.Dispatched.Count == many+1 })
	for i, at := range others {
		m := greedy.scheduled(at)
		require.Equal(t, "DISPATCHED", m.Status, "%d", i)
		before, sampled := 0, 0
		for j := 0; j < many; j += 50 {
			sampled++
			if !greedy.scheduled(all[j]).DispatchedAt.After(m.DispatchedAt.Time) {
				before++
			}
		}
		require.Less(t, before, sampled/2, "message %d waited for the many", i)
		t.Logf("message %d went after %d of %d, %v after its time", i, before*50, many,
			m.DispatchedAt.Sub(due.Add(50*time.Millisecond)))
	}
	require.Equal(t, held, paused.counts().Counts.ScheduledWaiting.Count)
	require.Equal(t, 200, p.do("POST", paused.path("/resume"), "").status)
	eventually(t, "what was paused to be through", func() bool { return paused.counts().Counts.Dispatched.Count == held })
	return true
}

// fillAt schedules messages of producer p and returns their locations; nil: their time came before the
// last one was accepted. It repeats what a store that is too busy did not take, as the answer says.
func (s *stage) fillAt(due time.Time, n int) (at []string) {
	line := `{"Payload":"x","ScheduledFor":"` + due.Format(time.RFC3339Nano) + `"}`
	for posts := 0; len(at) < n; posts++ {
		require.Less(s.t, posts, 30)
		for _, l := range s.lines(slices.Repeat([]string{line}, min(1000, n-len(at)))...) {
			switch l.Status {
			case 412:
				return nil
			case 503:
				require.Equal(s.t, "unavailable", l.Code)
			default:
				require.Equal(s.t, 201, l.Status, "%+v", l)
				at = append(at, l.Location)
			}
		}
	}
	return at
}
