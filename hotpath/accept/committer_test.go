package accept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// startCommitter runs a committer on the fake until the test ends.
func startCommitter(t *testing.T, f *memstore.Store, timeout time.Duration) (c *committer, committed func() int,
	stop func()) {
	t.Helper()
	f.Version++
	f.Channels = append(f.Channels, durable.Channel{No: 1, ID: "c", Audience: 1, Version: f.Version})
	cat := catalogue.New(f, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), f, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var mu sync.Mutex
	n := 0
	c = newCommitter(Options{Store: f, Catalogue: cat, Node: node, Committed: func(m []*durable.Message) {
		mu.Lock()
		n += len(m)
		mu.Unlock()
	}, Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}, timeout)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return c, func() int { mu.Lock(); defer mu.Unlock(); return n }, stop
}

func (s *Submitter) waiting() int {
	c := s.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// startSubmitter is startCommitter with the way in to it.
func startSubmitter(t *testing.T, f *memstore.Store, timeout time.Duration) (s *Submitter, committed func() int,
	stop func()) {
	t.Helper()
	c, committed, stop := startCommitter(t, f, timeout)
	return submitterOn(c), committed, stop
}

// submitterOn returns a submitter without narrow bounds on a committer.
func submitterOn(c *committer) *Submitter {
	return newSubmitter(c, Options{Admission: newAdmission(admissionMost, admissionMost),
		Bodies: share.New(share.Options{Most: 1 << 30})})
}

// add submits one message as a publish route does.
func (s *Submitter) add(payload string) error {
	sub := s.Submit(context.Background(), Terms{Patience: time.Minute, Since: time.Now()}, &durable.Message{ChannelNo: 1,
		Payload: []byte(payload)})
	defer sub.Release()
	sub.Wait()
	return sub.Outcome(0)
}

func TestConcurrentPublishesShareTransactions(t *testing.T) {
	f := &memstore.Store{Gate: make(chan struct{})}
	c, committed, _ := startSubmitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	add := func(i int) {
		wg.Go(func() {
			if err := c.add(fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	// Two transactions are held at the gate; everything else gathers behind them.
	for i := range Committers {
		add(i)
		require.Eventually(t, func() bool { return f.Entered.Load() == int64(i+1) }, 10*time.Second, time.Millisecond)
	}
	for i := Committers; i < 200; i++ {
		add(i)
	}
	require.Eventually(t, func() bool { return c.waiting() == 200-Committers }, 10*time.Second, time.Millisecond)
	close(f.Gate)
	wg.Wait()
	require.Equal(t, 200, f.Inserted())
	require.Equal(t, 200, committed())
	require.Len(t, f.Batches, Committers+1, "the rest went in one transaction")
	seen := map[ident.ID]bool{}
	for _, b := range f.Batches {
		for _, m := range b {
			require.False(t, seen[m.ID], "IDs are unique")
			seen[m.ID] = true
			require.Equal(t, 1, m.Audience)
		}
	}
}

func TestOneBadMessageFailsAlone(t *testing.T) {
	f := &memstore.Store{OnInsert: func(_ int, batch []*durable.Message) []error {
		out := make([]error, len(batch))
		for i, m := range batch {
			if string(m.Payload) == "bad" {
				out[i] = durable.ErrRejected
			}
		}
		return out
	}}
	c, committed, _ := startSubmitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			text := "good"
			if i == 7 {
				text = "bad"
			}
			err := c.add(text)
			if (err != nil) != (text == "bad") {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 49, committed())
}

func TestAStaleAudienceIsRefreshedAndStoredWithNewIDs(t *testing.T) {
	f := &memstore.Store{}
	f.OnInsert = func(call int, batch []*durable.Message) []error {
		if call == 0 { // another broker registered a consumer a moment ago
			f.Version++
			f.Channels = append(f.Channels, durable.Channel{No: 1, ID: "c", Audience: 2, Version: f.Version})
			return slices.Repeat([]error{durable.ErrStale}, len(batch))
		}
		return make([]error, len(batch))
	}
	c, committed, _ := startSubmitter(t, f, 5*time.Second)
	require.NoError(t, c.add("x"))
	require.Equal(t, 1, committed())
	require.Len(t, f.Batches, 2)
	require.Equal(t, 1, f.Batches[0][0].Audience)
	require.Equal(t, 2, f.Batches[1][0].Audience)
	require.NotEqual(t, f.Batches[0][0].ID, f.Batches[1][0].ID)
	require.Equal(t, 1, f.Renewed, "the node lease is checked as well")
}

// What may be stored already is not stored again under another ID.
func TestAStaleRepeatOfAnUnknownOutcomeIsUnknown(t *testing.T) {
	f := &memstore.Store{OnInsert: func(_ int, batch []*durable.Message) []error {
		return slices.Repeat([]error{errors.Join(durable.ErrOutcomeUnknown, durable.ErrStale)}, len(batch))
	}}
	c, committed, _ := startSubmitter(t, f, 5*time.Second)
	require.ErrorIs(t, c.add("x"), durable.ErrOutcomeUnknown)
	require.Zero(t, committed())
	require.Len(t, f.Batches, 1)
}

func TestAStoreThatNeverAnswersIsNeverATwoHundred(t *testing.T) {
	f := &memstore.Store{Gate: make(chan struct{})}
	c, committed, _ := startSubmitter(t, f, 300*time.Millisecond)
	err := c.add("x")
	require.ErrorIs(t, err, durable.ErrOutcomeUnknown)
	require.Equal(t, 503, problem.From(err).Status)
	require.Zero(t, committed())
}

func TestStoppingAnswersEverybodyAndRefusesTheNext(t *testing.T) {
	f := &memstore.Store{Gate: make(chan struct{}, 1000)}
	c, _, stop := startSubmitter(t, f, 5*time.Second)
	var wg sync.WaitGroup
	answered := make(chan error, 100)
	for range 100 {
		wg.Go(func() { answered <- c.add("x") })
	}
	require.Eventually(t, func() bool { return f.Entered.Load() > 0 }, 10*time.Second, time.Millisecond)
	for range 200 {
		f.Gate <- struct{}{}
	}
	stop()
	wg.Wait()
	for range 100 {
		err := <-answered
		require.True(t, err == nil || errors.Is(err, problem.ErrDraining), "%v", err)
	}
	require.ErrorIs(t, c.add("late"), problem.ErrDraining)
}

func BenchmarkCommitter(b *testing.B) {
	f := &memstore.Store{OnInsert: func(_ int, batch []*durable.Message) []error { return make([]error, len(batch)) }}
	f.Version++
	f.Channels = []durable.Channel{{No: 1, ID: "c", Audience: 1, Version: 1}}
	cat := catalogue.New(f, slog.New(slog.DiscardHandler))
	_ = cat.Refresh(b.Context())
	node, _ := cluster.New(b.Context(), f, "bench", slog.New(slog.DiscardHandler))
	c := newCommitter(Options{Store: noStore{}, Catalogue: cat, Node: node, Committed: func([]*durable.Message) {},
		Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}, time.Minute)
	s := submitterOn(c)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go c.Run(ctx)
	payload := make([]byte, 1024)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			sub := s.Submit(context.Background(), Terms{Patience: time.Minute, Since: time.Now()}, &durable.Message{ChannelNo: 1,
				Payload: payload})
			sub.Wait()
			sub.Release()
		}
	})
}

type noStore struct{}

func (noStore) ChangeScheduled(context.Context, durable.ScheduleChange) (*durable.Scheduled, error) {
	return nil, durable.ErrNotFound
}

func (noStore) Schedule(context.Context, durable.NodeLease, []*durable.Scheduled) []error { return nil }

func (noStore) Insert(_ context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	return make([]error, len(batch))
}

func TestTheReasonOfARejectedLineIsLoggedOncePerTransaction(t *testing.T) {
	var logged bytes.Buffer
	rejected := fmt.Errorf("%w: CONSTRAINT `strict` failed", durable.ErrRejected)
	c := &committer{log: slog.New(slog.NewTextHandler(&logged, nil))}
	line := func() *write {
		return &write{msg: &durable.Message{Key: "k", Payload: []byte("s3cret")}, of: &Submission{ctx: requestOf("r-1"),
			lines: true}}
	}
	single := &write{msg: &durable.Message{}, of: &Submission{ctx: t.Context()}}
	c.tellRejected([]*write{single, line(), line()}, []error{rejected, durable.ErrStale, nil})
	require.Empty(t, logged.String(), "the answer of a single request is logged where it is written")
	c.tellRejected([]*write{single, line(), line()}, []error{nil, rejected, rejected})
	require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("strict")))
	require.Contains(t, logged.String(), "request_id=r-1")
	require.NotContains(t, logged.String(), "s3cret")
}

// asking is a store that tells for which requests it is asked.
type asking struct {
	noStore
	entered chan struct{}
	gate    chan struct{}
	mu      sync.Mutex
	ids     [][]string
}

func (s *asking) Insert(ctx context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	s.entered <- struct{}{}
	<-s.gate
	var ids []string
	request.Each(ctx, func(member context.Context) bool {
		ids = append(ids, request.ID(member))
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, ids)
	return make([]error, len(batch))
}

func requestOf(id string) context.Context {
	var rc fasthttp.RequestCtx
	rc.Response.Header.Set(request.HeaderID, id)
	return request.Of(&rc)
}

// A transaction has messages of several requests, of one some: it leads to each request once.
func TestATransactionLeadsToTheRequestsOfItsMessages(t *testing.T) {
	store := &asking{entered: make(chan struct{}, 10), gate: make(chan struct{})}
	c, _, stop := startCommitter(t, &memstore.Store{}, time.Minute)
	c.store = store
	s := submitterOn(c)
	var subs []*Submission
	submit := func(id string, payloads ...string) {
		subs = append(subs, s.Submit(requestOf(id), Terms{Patience: time.Minute, Since: time.Now()}, text(payloads...)...))
	}
	for i := range Committers {
		submit(fmt.Sprint("first-", i), "a")
		<-store.entered
	}
	submit("alone", "a")
	submit("lines", "a", "b", "c")
	submit("another", "a")
	close(store.gate)
	for _, sub := range subs {
		sub.Wait()
		sub.Release()
	}
	stop()
	require.Contains(t, store.ids, []string{"alone", "lines", "another"})
}
