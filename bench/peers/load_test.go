package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench"
)

// memory is a server in this process that can be told to misbehave.
type memory struct {
	queue   chan []byte
	left    atomic.Int64
	n       atomic.Int64
	mistake func(n int64, body []byte) (copies [][]byte, err error) // what becomes of the nth message
	idle    bool                                                    // the consumer takes nothing
	forget  int64                                                   // what Left does not count
}

func newMemory() *memory { return &memory{queue: make(chan []byte, 1<<16)} }

func (*memory) Version() string                                { return "memory" }
func (*memory) Processes() []bench.Process                     { return nil }
func (*memory) Close() error                                   { return nil }
func (m *memory) Left(context.Context) (int64, error)          { return m.left.Load() - m.forget, nil }
func (m *memory) Publisher(context.Context) (publisher, error) { return memoryPublisher{m}, nil }

type memoryPublisher struct{ *memory }

func (p memoryPublisher) Publish(_ context.Context, body []byte) error {
	n := p.n.Add(1)
	time.Sleep(200 * time.Microsecond) // a closed loop with an instant server would only test the processor
	copies := [][]byte{append([]byte(nil), body...)}
	var err error
	if p.mistake != nil {
		copies, err = p.mistake(n, copies[0])
	}
	for _, c := range copies {
		p.left.Add(1)
		p.queue <- c
	}
	return err
}

type memoryConsumer struct {
	stop chan struct{}
	done sync.WaitGroup
}

func (m *memory) Consume(receive func([]byte)) (consumer, error) {
	k := &memoryConsumer{stop: make(chan struct{})}
	k.done.Go(func() {
		for !m.idle {
			select {
			case <-k.stop:
				return
			case b := <-m.queue:
				receive(b)
				m.left.Add(-1)
			}
		}
	})
	return k, nil
}

func (k *memoryConsumer) Close() error {
	close(k.stop)
	k.done.Wait()
	return nil
}

// runOn loads a memory server for a moment.
func runOn(t *testing.T, m *memory) *sample {
	t.Helper()
	o, err := parseOptions([]string{"-warmup", "50ms", "-duration", "200ms", "-drain", "1s"}, t.Output())
	require.NoError(t, err)
	l, err := newLoad(o, 4, m)
	require.NoError(t, err)
	x := &sample{Subject: "memory", Publishers: 4, Round: 1}
	x.Result, x.Held, err = l.run(t.Context())
	if err != nil {
		x.Failure = err.Error()
	}
	return x
}

func TestAServerThatKeepsItsPromiseIsProven(t *testing.T) {
	t.Parallel()
	x := runOn(t, newMemory())
	require.Empty(t, x.doubt())
	v := x.Result.Ledger
	require.Positive(t, v.Acked)
	require.Equal(t, v.Acked, v.Delivered)
	require.Zero(t, v.Duplicates)
	require.Zero(t, x.Held)
	require.Positive(t, x.Result.AckedRate)
	require.Positive(t, x.Result.Ack.P50)
	require.Less(t, x.Result.Messages, v.Acked, "the warm-up is reconciled but not measured")
	require.Equal(t, exitOK, (&report{Runs: []*sample{x}}).verdict())
}

func TestALostMessageIsFoundAndFailsTheRun(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.mistake = func(n int64, body []byte) ([][]byte, error) {
		if n == 10 {
			return nil, nil // acknowledged and gone
		}
		return [][]byte{body}, nil
	}
	x := runOn(t, m)
	require.EqualValues(t, 1, x.Result.Ledger.Lost)
	require.NotEmpty(t, x.doubt())
	require.Equal(t, exitPromise, (&report{Runs: []*sample{x}}).verdict())
}

func TestACopyAndACorruptedBodyAreFound(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.mistake = func(n int64, body []byte) ([][]byte, error) {
		switch n {
		case 10:
			return [][]byte{body, body}, nil
		case 20:
			body[len(body)-1] ^= 1
		}
		return [][]byte{body}, nil
	}
	x := runOn(t, m)
	require.EqualValues(t, 1, x.Result.Ledger.Duplicates)
	require.EqualValues(t, 1, x.Result.Ledger.Corrupted)
	require.Equal(t, exitPromise, (&report{Runs: []*sample{x}}).verdict())
}

func TestABacklogThatTheServerCountsIsNotLost(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.idle = true
	x := runOn(t, m)
	v := x.Result.Ledger
	require.Zero(t, v.Lost)
	require.Equal(t, v.Acked, v.Pending)
	require.Equal(t, v.Acked, x.Held)
	require.Empty(t, x.doubt())
}

func TestABacklogThatTheServerDoesNotCountIsLost(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.idle, m.forget = true, 3
	x := runOn(t, m)
	require.EqualValues(t, 3, x.Result.Ledger.Lost)
}

func TestDeliveriesThatTheServerStillHoldsAreNotProven(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.forget = -2 // two acknowledgements never reached it
	x := runOn(t, m)
	require.Zero(t, x.Result.Ledger.Lost)
	require.Contains(t, x.doubt(), "has 2 messages more")
	require.Equal(t, exitUnproven, (&report{Runs: []*sample{x}}).verdict())
}

func TestAnErrorOfAPublishIsUncertainNotAcknowledged(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.mistake = func(n int64, body []byte) ([][]byte, error) {
		if n == 10 {
			return nil, errors.New("no answer")
		}
		return [][]byte{body}, nil
	}
	x := runOn(t, m)
	require.EqualValues(t, 1, x.Result.Ledger.Uncertain)
	require.Zero(t, x.Result.Ledger.Lost)
	require.Empty(t, x.doubt())
	require.Contains(t, x.line(), "no answer")
}
