package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// A world is a store with a channel, a consumer and the channel of alerts.
type world struct {
	t     *testing.T
	store *durable.Store
	cat   *catalogue.Catalogue
	k     durable.Consumer
	node  durable.NodeLease
	ids   *ident.Generator
	dir   string

	mu        sync.Mutex
	published []*durable.Message // that are stored
	failures  int                // how often the channel still fails
}

func newWorld(t *testing.T) *world {
	ctx := context.Background()
	dir := t.TempDir()
	tables.SQLite(t, dir)
	store, err := durable.OpenSQLite(ctx, dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	w := &world{t: t, store: store, dir: dir, cat: catalogue.New(store, slog.New(slog.DiscardHandler))}
	for _, id := range []string{ident.AlertsChannel, "c"} {
		_, _, err = store.PutChannel(ctx, durable.Put{ID: id, NewToken: "t"})
		require.NoError(t, err)
	}
	w.k = w.consumer("k")
	w.node, err = store.LeaseNode(ctx, "test", time.Hour)
	require.NoError(t, err)
	w.ids = ident.NewGenerator(w.node.No, func() int64 { return time.Now().UnixMilli() })
	return w
}

func (w *world) consumer(id string) durable.Consumer {
	pull := durable.Pull
	k, _, err := w.store.PutConsumer(context.Background(), durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"},
		ChannelID: "c", Type: &pull})
	require.NoError(w.t, err)
	require.NoError(w.t, w.cat.Refresh(context.Background()))
	return k
}

// publish stores a message, as the data plane does.
func (w *world) publish(ctx context.Context, m *durable.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failures > 0 {
		w.failures--
		return errors.New("the store is away")
	}
	m.ID = w.ids.Next()
	ch := w.cat.ChannelByNo(m.ChannelNo)
	m.Audience, m.Shape = ch.Audience, ch.Shape
	if err := w.store.Insert(ctx, w.node, []*durable.Message{m})[0]; err != nil {
		return err
	}
	w.published = append(w.published, m)
	return nil
}

// broker runs the alerts of a broker until the test ends, or until it is stopped.
func (w *world) broker(change func(*Options)) (a *Alerts, stop func()) {
	o := Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 { return time.Now().UnixMilli() },
		Publish: w.publish, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	a = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx, true) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return a, stop
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.published)
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(w.t, time.Now().Before(deadline), what)
	}
}

// die moves a consumer to DEAD in the store only, as a broker does that ends at once.
func (w *world) die(k durable.Consumer) {
	_, changed, err := w.store.SetConsumerState(context.Background(), durable.StateChange{ConsumerNo: k.No,
		To:   durable.StateDead,
		From: []durable.ConsumerState{durable.StateActive}, Reason: "failures"})
	require.NoError(w.t, err)
	require.True(w.t, changed)
}

// slow raises the alert that a consumer is slow, as the count of its attempts does.
func slow(a *Alerts, consumer uint32, reason string, atMs int64) error {
	err := a.o.Store.RaiseAlert(context.Background(), durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: consumer,
		AtMs: atMs, Reason: reason})
	if err == nil {
		a.Wake()
	}
	return err
}

// Being slow is one alert for each time of a consumer, however often and on however many brokers it is
// called, also after the alert is over.
func TestSlowIsOneAlert(t *testing.T) {
	w := newWorld(t)
	a, _ := w.broker(nil)
	b, _ := w.broker(nil)
	now := time.Now().UnixMilli()
	for range 3 {
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { _ = slow([]*Alerts{a, b}[i%2], w.k.No, "5 of 10 failed", now) })
		}
		wg.Wait()
		w.eventually("the end of the rows", func() bool {
			due, _, err := w.store.DueAlerts(context.Background(), durable.AlertChannel, 1<<60, 1)
			return err == nil && len(due) == 0
		})
	}
	w.eventually("the message", func() bool { return w.count() == 1 })
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, 1, w.count())
	require.Equal(t, fmt.Sprintf("alert-slow-%d-", w.k.No), w.published[0].Key[:len("alert-slow-x-")])
	require.True(t, ident.ValidName(w.published[0].Key))
	require.EqualValues(t, 1, testutil.ToFloat64(a.published.WithLabelValues("consumer.slow"))+
		testutil.ToFloat64(b.published.WithLabelValues("consumer.slow")))

	require.NoError(t, slow(a, w.k.No, "again", now+1))
	w.eventually("another one", func() bool { return w.count() == 2 })
	require.ErrorIs(t, slow(a, 77, "", now), durable.ErrNotFound)
}

// The alert of a broker that died after its transition is published by another one, which learns
// of the transition by the catalogue; a broker that starts publishes what it finds.
func TestAnotherBrokerPublishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.consumer("before")
	w.die(before)
	w.broker(nil)
	w.eventually("the alert from before", func() bool { return w.count() == 1 })
	w.die(w.k)
	require.NoError(t, w.cat.Refresh(context.Background()))
	w.eventually("the alert of another broker", func() bool { return w.count() == 2 })
}

// An alert that cannot be stored is published later.
func TestAnAlertIsPublishedWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failures = 1
	a, _ := w.broker(nil)
	require.NoError(t, slow(a, w.k.No, "", time.Now().UnixMilli()))
	w.eventually("the message", func() bool { return w.count() == 1 })
	require.EqualValues(t, 1, testutil.ToFloat64(a.failures))
}

// Only an alert about a held consumer has a link, and its body is the same on every broker.
func TestTheBodyOfAnAlert(t *testing.T) {
	w := newWorld(t)
	a := New(Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 {
		return 0
	}, Log: slog.New(slog.DiscardHandler),
		Link: func(_ context.Context, a *durable.Alert) (string, error) { return "https://b/" + a.ConsumerID, nil }})
	for event, want := range map[durable.Event]string{
		durable.ConsumerDead:        `{"Event":"consumer.dead","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why","ReviveURL":"https://b/k"}`,
		durable.ConsumerGone:        `{"Event":"consumer.gone","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why","ReviveURL":"https://b/k"}`,
		durable.ConsumerRevived:     `{"Event":"consumer.revived","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why"}`,
		durable.ConsumerSlow:        `{"Event":"consumer.slow","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why"}`,
		durable.DLQGrowing:          `{"Event":"dlq.growing","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why"}`,
		durable.ConsumerLate.Over(): `{"Event":"consumer.late.over","ChannelID":"c","ConsumerID":"k","At":"2020-09-13T12:26:40.123Z","Reason":"why"}`,
	} {
		body, err := a.body(context.Background(), &durable.Alert{Event: event, ChannelID: "c", ConsumerID: "k",
			AtMs: 1600000000123, Reason: "why"})
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
	// A consumer that is quoted forges no line of a mail.
	view, err := a.view(context.Background(), &durable.Alert{Event: durable.ConsumerSlow,
		Reason: "answered:\r\n\tno\u2028Revive:   https://evil/\n"})
	require.NoError(t, err)
	require.Equal(t, "answered: no Revive: https://evil/", view.Reason)
}

// A growth of dead letters is one alert until it has ended, and only one broker looks.
func TestGrowthIsAlertedOnceUntilItEnds(t *testing.T) {
	w := newWorld(t)
	now := time.Now().UnixMilli()
	owns := true
	a := New(Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 {
		return now
	}, Log: slog.New(slog.DiscardHandler)})
	check := func() int {
		t.Helper()
		g := &growthCheck{Alerts: a, Growth: Growth{Jobs: 3, Window: time.Minute, Owns: func(uint32) bool { return owns }}}
		_, err := g.round(context.Background())
		require.NoError(t, err)
		due, _, err := w.store.DueAlerts(context.Background(), durable.AlertChannel, 1<<60, 100)
		require.NoError(t, err)
		return len(due)
	}
	die := func(n int) {
		t.Helper()
		var dead []durable.Outcome
		for range n {
			dead = append(dead, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: w.k.No, ID: w.ids.Next(), Attempts: 1,
				AtMs: now, Error: "no"})
		}
		require.NoError(t, w.store.Record(context.Background(), dead))
	}
	require.Equal(t, 0, check())
	die(2)
	require.Equal(t, 0, check())
	die(1)
	owns = false
	require.Equal(t, 0, check(), "another broker looks")
	owns = true
	require.Equal(t, 1, check())
	for range 4 {
		now += 30_000
		die(3)
		require.Equal(t, 1, check(), "it goes on")
	}
	now += 61_000
	require.Equal(t, 2, check(), "it has ended, which is an alert as well")
	die(2)
	require.Equal(t, 2, check())
	die(1)
	require.Equal(t, 3, check())
}
