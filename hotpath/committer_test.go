package hotpath

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/problem"
)

// fakeStore is the little of a store that the committer sees.
type fakeStore struct {
	mu       sync.Mutex
	batches  [][]durable.Message
	channels []durable.Channel
	version  int64
	insert   func(call int, batch []*durable.Message) []error
	gate     chan struct{} // when not nil, each insert takes one value first
	entered  atomic.Int64  // inserts begun
	renewed  int
}

func (f *fakeStore) Insert(ctx context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	f.entered.Add(1)
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	call := len(f.batches)
	copied := make([]durable.Message, len(batch))
	for i, m := range batch {
		copied[i] = *m
	}
	f.batches = append(f.batches, copied)
	if f.insert != nil {
		return f.insert(call, batch)
	}
	return make([]error, len(batch))
}

func (f *fakeStore) Changes(_ context.Context, after int64) (durable.Changes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := durable.Changes{Version: f.version}
	for _, ch := range f.channels {
		if ch.Version > after {
			c.Channels = append(c.Channels, ch)
		}
	}
	return c, nil
}

func (f *fakeStore) LeaseNode(context.Context, string, time.Duration) (durable.NodeLease, error) {
	return durable.NodeLease{No: 3, Token: [16]byte{1}, Expires: time.Now().Add(cluster.TTL)}, nil
}

func (f *fakeStore) RenewNode(_ context.Context, l durable.NodeLease, _ time.Duration) (durable.NodeLease, error) {
	f.mu.Lock()
	f.renewed++
	f.mu.Unlock()
	l.Expires = time.Now().Add(cluster.TTL)
	return l, nil
}
func (f *fakeStore) ReleaseNode(context.Context, durable.NodeLease) error { return nil }
func (f *fakeStore) Nodes(context.Context) ([]durable.Node, error)        { return nil, nil }

func (f *fakeStore) all() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		n += len(b)
	}
	return n
}

// startCommitter runs a committer on the fake until the test ends.
func startCommitter(t *testing.T, f *fakeStore, timeout time.Duration) (c *committer, committed func() int, stop func()) {
	t.Helper()
	f.version++
	f.channels = append(f.channels, durable.Channel{No: 1, ID: "c", Audience: 1, Version: f.version})
	cat := catalogue.New(f, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), f, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var mu sync.Mutex
	n := 0
	c = newCommitter(f, cat, node, timeout, func(m []*durable.Message) {
		mu.Lock()
		n += len(m)
		mu.Unlock()
	}, metrics.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return c, func() int { mu.Lock(); defer mu.Unlock(); return n }, stop
}

func (c *committer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

func textWrite(payload string) *write {
	return &write{msg: &durable.Message{ChannelNo: 1, Payload: []byte(payload)}, since: time.Now(), done: make(chan error, 1)}
}

func TestConcurrentPublishesShareTransactions(t *testing.T) {
	f := &fakeStore{gate: make(chan struct{})}
	c, committed, _ := startCommitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	add := func(i int) {
		wg.Go(func() {
			if err := c.Add(textWrite(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	// Two transactions are held at the gate; everything else gathers behind them.
	for i := range committers {
		add(i)
		require.Eventually(t, func() bool { return f.entered.Load() == int64(i+1) }, 10*time.Second, time.Millisecond)
	}
	for i := committers; i < 200; i++ {
		add(i)
	}
	require.Eventually(t, func() bool { return c.waiting() == 200-committers }, 10*time.Second, time.Millisecond)
	close(f.gate)
	wg.Wait()
	require.Equal(t, 200, f.all())
	require.Equal(t, 200, committed())
	require.Len(t, f.batches, committers+1, "the rest went in one transaction")
	seen := map[ident.ID]bool{}
	for _, b := range f.batches {
		for _, m := range b {
			require.False(t, seen[m.ID], "IDs are unique")
			seen[m.ID] = true
			require.Equal(t, 1, m.Audience)
		}
	}
}

func TestOneBadMessageFailsAlone(t *testing.T) {
	f := &fakeStore{insert: func(_ int, batch []*durable.Message) []error {
		out := make([]error, len(batch))
		for i, m := range batch {
			if string(m.Payload) == "bad" {
				out[i] = durable.ErrRejected
			}
		}
		return out
	}}
	c, committed, _ := startCommitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			text := "good"
			if i == 7 {
				text = "bad"
			}
			err := c.Add(textWrite(text))
			if (err != nil) != (text == "bad") {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 49, committed())
}

func TestAStaleAudienceIsRefreshedAndStoredWithNewIDs(t *testing.T) {
	f := &fakeStore{}
	f.insert = func(call int, batch []*durable.Message) []error {
		if call == 0 { // another broker registered a consumer a moment ago
			f.version++
			f.channels = append(f.channels, durable.Channel{No: 1, ID: "c", Audience: 2, Version: f.version})
			return slices.Repeat([]error{durable.ErrStale}, len(batch))
		}
		return make([]error, len(batch))
	}
	c, committed, _ := startCommitter(t, f, 5*time.Second)
	require.NoError(t, c.Add(textWrite("x")))
	require.Equal(t, 1, committed())
	require.Len(t, f.batches, 2)
	require.Equal(t, 1, f.batches[0][0].Audience)
	require.Equal(t, 2, f.batches[1][0].Audience)
	require.NotEqual(t, f.batches[0][0].ID, f.batches[1][0].ID)
	require.Equal(t, 1, f.renewed, "the node lease is checked as well")
}

func TestAStoreThatNeverAnswersIsNeverATwoHundred(t *testing.T) {
	f := &fakeStore{gate: make(chan struct{})}
	c, committed, _ := startCommitter(t, f, 300*time.Millisecond)
	err := c.Add(textWrite("x"))
	require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
	require.Equal(t, 503, problem.From(err).Status)
	require.Zero(t, committed())
}

func TestStoppingAnswersEverybodyAndRefusesTheNext(t *testing.T) {
	f := &fakeStore{gate: make(chan struct{}, 1000)}
	c, _, stop := startCommitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	answered := make(chan error, 100)
	for range 100 {
		wg.Go(func() { answered <- c.Add(textWrite("x")) })
	}
	require.Eventually(t, func() bool { return f.entered.Load() > 0 }, 10*time.Second, time.Millisecond)
	for range 200 {
		f.gate <- struct{}{}
	}
	stop()
	wg.Wait()
	for range 100 {
		err := <-answered
		require.True(t, err == nil || errors.Is(err, problem.ErrDraining), "%v", err)
	}
	require.ErrorIs(t, c.Add(textWrite("late")), problem.ErrDraining)
}

func BenchmarkCommitter(b *testing.B) {
	f := &fakeStore{insert: func(_ int, batch []*durable.Message) []error { return make([]error, len(batch)) }}
	f.version++
	f.channels = []durable.Channel{{No: 1, ID: "c", Audience: 1, Version: 1}}
	cat := catalogue.New(f, slog.New(slog.DiscardHandler))
	_ = cat.Refresh(b.Context())
	node, _ := cluster.New(b.Context(), f, "bench", slog.New(slog.DiscardHandler))
	c := newCommitter(noStore{}, cat, node, time.Minute, func([]*durable.Message) {}, metrics.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = c.Run(ctx) }()
	payload := make([]byte, 1024)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = c.Add(&write{msg: &durable.Message{ChannelNo: 1, Payload: payload}, since: time.Now(), done: make(chan error, 1)})
		}
	})
}

type noStore struct{}

func (noStore) Insert(_ context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	return make([]error, len(batch))
}

func TestTheReasonOfARejectedLineIsLoggedOncePerTransaction(t *testing.T) {
	var logged bytes.Buffer
	rejected := fmt.Errorf("%w: CONSTRAINT `picky` failed", durable.ErrRejected)
	c := &committer{log: slog.New(slog.NewTextHandler(&logged, nil))}
	line := func() *write {
		return &write{msg: &durable.Message{Key: "k", Payload: []byte("s3cret")}, chunk: &chunk{}}
	}
	single := &write{msg: &durable.Message{}}
	c.tellRejected([]*write{single, line(), line()}, []error{rejected, durable.ErrStale, nil})
	require.Empty(t, logged.String(), "the answer of a single request is logged where it is written")
	c.tellRejected([]*write{single, line(), line()}, []error{nil, rejected, rejected})
	require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("picky")))
	require.NotContains(t, logged.String(), "s3cret")
}
