package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A shelf is a queue that keeps notes in memory.
type shelf struct {
	mu    sync.Mutex
	notes map[string]string
	err   error // of each call; nil: it works
}

func (s *shelf) KeepBrokerNote(_ context.Context, broker, note string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.notes[broker] = note
	}
	return s.err
}

func (s *shelf) BrokerNotes(context.Context) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for k, v := range s.notes {
		out[k] = v
	}
	return out, s.err
}

func (s *shelf) DropBrokerNotes(_ context.Context, brokers []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range brokers {
		delete(s.notes, b)
	}
	return s.err
}

// set changes what is kept, and whether the shelf works.
func (s *shelf) set(err error, notes map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.notes = err, notes
}

func (s *shelf) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.notes)
}

// keeper is a keeper of a node, whose counts grow by a hundred each turn.
func keeper(s *shelf, no int) *Keeper {
	var n uint64
	return New(Options{Queue: s, Version: apitype.Version{Version: "1.2.3"}, Log: slog.New(slog.DiscardHandler),
		NowMs: func() int64 { return time.Now().UnixMilli() },
		Node:  func() (int, string) { return no, fmt.Sprintf("host:%d", no) },
		Count: func() Counts {
			n += 100
			return Counts{Accepted: n, Delivered: 2 * n, InFlight: 7, FanOut: 3, Answers: [3]uint64{n, 0, n / 2},
				Journal: Journal{Waiting: 5}}
		}})
}

// run runs a keeper, and returns what ends it.
func run(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	return func() { cancel(); <-done }
}

func TestBrokersKnowHowTheOthersAreDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{notes: map[string]string{}}
		one, two := keeper(s, 1), keeper(s, 2)
		stopOne, stopTwo := run(one), run(two)
		time.Sleep(2*Every + time.Second)
		own, others := one.Notes()
		require.Equal(t, 1, own.No)
		require.Len(t, others, 1)
		n := others[0]
		require.Equal(t, "host:2", n.Name)
		require.Equal(t, "1.2.3", n.Version.Version)
		require.InDelta(t, 20, n.Accepted, 0.1)
		require.InDelta(t, 40, n.Delivered, 0.1)
		require.Equal(t, [3]float64{20, 0, 10}, n.Answers)
		require.Equal(t, []int{7, 3, 5}, []int{n.InFlight, n.FanOut, int(n.Journal.Waiting)})
		require.Positive(t, n.Memory)
		require.WithinDuration(t, time.Now(), n.At(), 2*Every)
		require.True(t, n.Began().Before(n.At()))

		stopTwo() // it takes its note with it
		require.Equal(t, 1, s.len())
		time.Sleep(Every)
		_, others = one.Notes()
		require.Empty(t, others)
		stopOne()
		require.Zero(t, s.len())
	})
}

func TestANoteThatIsOldOrCannotBeReadSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		note := func(no int, ago time.Duration) string {
			n := Note{No: no, AtMs: time.Now().Add(-ago).UnixMilli()}
			return n.encode()
		}
		s := &shelf{notes: map[string]string{"dead": note(2, gone+time.Second), "future": note(3, -gone-time.Second),
			"quiet": note(4, stale+time.Second), "fine": note(5, time.Second), "empty": "", "list": "[1]", "null": "null",
			"text": `{"at":"yesterday"}`, "long": `{"at":1,"name":"` + strings.Repeat("x", mostNote) + `"}`}}
		k := keeper(s, 1)
		stop := run(k)
		synctest.Wait()
		_, others := k.Notes()
		require.Len(t, others, 1)
		require.Equal(t, 5, others[0].No)
		require.Equal(t, 3, s.len(), "its own, the quiet and the fine one stay")
		stop()
	})
}

func TestAQueueThatFailsOrWasWipedHarmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{notes: map[string]string{}}
		one, two := keeper(s, 1), keeper(s, 2)
		stopOne, stopTwo := run(one), run(two)
		time.Sleep(Every + time.Second)
		_, others := one.Notes()
		require.Len(t, others, 1)

		s.set(errors.New("away"), map[string]string{})
		time.Sleep(stale + Every)
		own, others := one.Notes()
		require.Empty(t, others, "what was heard last says nothing any more")
		require.WithinDuration(t, time.Now(), own.At(), Every, "its own is known without the queue")

		s.set(nil, map[string]string{}) // it is back, and was wiped
		time.Sleep(2 * Every)
		_, others = one.Notes()
		require.Len(t, others, 1)
		stopTwo()
		stopOne()
	})
}

func TestTheNotesOfVeryManyBrokersHaveABound(t *testing.T) {
	s := &shelf{notes: map[string]string{}}
	for i := range mostNotes + 10 {
		n := Note{No: i, AtMs: time.Now().UnixMilli()}
		s.notes[fmt.Sprint(i)] = n.encode()
	}
	k := keeper(s, 1)
	require.NoError(t, k.turn(t.Context()))
	_, others := k.Notes()
	require.Len(t, others, mostNotes)
}
