package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
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
	retry time.Duration // of brokers

	mu        sync.Mutex
	published []string // message IDs that are stored
	mails     [][]apitype.Alert
	posts     []string
	failures  map[string]int // how often a sink still fails
}

func newWorld(t *testing.T) *world {
	ctx := context.Background()
	dir := t.TempDir()
	tables.SQLite(t, dir)
	store, err := durable.OpenSQLite(ctx, dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	w := &world{t: t, store: store, cat: catalogue.New(store, slog.New(slog.DiscardHandler)), failures: map[string]int{},
		retry: firstRetry}
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

// fails counts a try of a sink and reports whether it fails.
func (w *world) fails(sink string) error {
	if w.failures[sink] > 0 {
		w.failures[sink]--
		return errors.New(sink + " is away")
	}
	return nil
}

// publish stores a message, as the data plane does.
func (w *world) publish(ctx context.Context, m *durable.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails("channel"); err != nil {
		return err
	}
	m.ID = w.ids.Next()
	m.Audience = w.cat.ChannelByNo(m.ChannelNo).Audience
	if err := w.store.Insert(ctx, w.node, []*durable.Message{m})[0]; err != nil {
		return err
	}
	w.published = append(w.published, m.Key)
	return nil
}

func (w *world) Send(_ context.Context, _ string, alerts []apitype.Alert) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails("mail"); err != nil {
		return err
	}
	w.mails = append(w.mails, alerts)
	return nil
}

func (w *world) Post(_ context.Context, id string, _ []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails("webhook"); err != nil {
		return err
	}
	w.posts = append(w.posts, id)
	return nil
}

// broker runs the alerts of a broker until the test ends, or until it is stopped.
func (w *world) broker(change func(*Options)) (a *Alerts, stop func()) {
	o := Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 { return time.Now().UnixMilli() },
		Publish: w.publish, Mail: w, Webhook: w, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	a = New(o)
	a.retry = w.retry
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx, true) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return a, stop
}

// mailed are the consumers that mails were about.
func (w *world) mailed() (consumers []string, mails int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mails {
		for _, a := range m {
			consumers = append(consumers, a.ConsumerID)
		}
	}
	return consumers, len(w.mails)
}

func (w *world) counts() (published, posts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.published), len(w.posts)
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
	w.eventually("the sinks", func() bool {
		_, posts := w.counts()
		_, mails := w.mailed()
		return posts == 1 &&
			mails == 1
	})
	time.Sleep(200 * time.Millisecond)
	published, posts := w.counts()
	require.Equal(t, []int{1, 1}, []int{published, posts})
	consumers, _ := w.mailed()
	require.Equal(t, []string{"k"}, consumers)
	require.Equal(t, fmt.Sprintf("alert-slow-%d-", w.k.No), w.published[0][:len("alert-slow-x-")])
	require.True(t, ident.ValidName(w.published[0]))
	require.EqualValues(t, 1, testutil.ToFloat64(a.published.WithLabelValues("consumer.slow"))+
		testutil.ToFloat64(b.published.WithLabelValues("consumer.slow")))

	require.NoError(t, slow(a, w.k.No, "again", now+1))
	w.eventually("another one", func() bool { n, _ := w.counts(); return n == 2 })
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
	w.eventually("the alert from before", func() bool { n, _ := w.counts(); return n == 1 })
	w.die(w.k)
	require.NoError(t, w.cat.Refresh(context.Background()))
	w.eventually("the alert of another broker", func() bool { n, _ := w.counts(); return n == 2 })
}

// A sink that fails gets the alert later, once, and neither another sink nor the channel waits
// for it. It does not get an alert for which it failed too often.
func TestASinkThatFailsGetsTheAlertLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failures["webhook"], w.failures["channel"] = 3, 1
	w.retry = 20 * time.Millisecond
	a, _ := w.broker(nil)
	now := time.Now().UnixMilli()
	require.NoError(t, slow(a, w.k.No, "", now))
	w.eventually("the mail", func() bool { _, mails := w.mailed(); return mails == 1 })
	w.eventually("the webhook", func() bool { _, posts := w.counts(); return posts == 1 })
	require.EqualValues(t, 3, testutil.ToFloat64(a.failures.WithLabelValues("webhook")))
	require.EqualValues(t, 1, testutil.ToFloat64(a.failures.WithLabelValues("channel")))

	row := durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: w.k.No, ChannelID: "c", ConsumerID: "k", AtMs: now,
		Sink: durable.AlertWebhook, Tries: maxTries - 2}
	require.NoError(t, a.conclude(context.Background(), []durable.Alert{row}, errors.New("away")))
	require.Zero(t, testutil.ToFloat64(a.dropped.WithLabelValues("webhook")))
	row.Tries++
	require.NoError(t, a.conclude(context.Background(), []durable.Alert{row}, errors.New("away")))
	require.EqualValues(t, 1, testutil.ToFloat64(a.dropped.WithLabelValues("webhook")))
}

// A storm of transitions is few mails, over all brokers, and none of the alerts is missing or
// twice.
func TestAStormIsFewMails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const consumers = 60
	for i := range consumers {
		w.die(w.consumer(fmt.Sprint("k", i)))
	}
	for range 3 {
		w.broker(nil)
	}
	begun := time.Now()
	w.eventually("all mails", func() bool { about, _ := w.mailed(); return len(about) >= consumers })
	about, mails := w.mailed()
	require.LessOrEqual(t, mails, 1+int(time.Since(begun)/mailPause)+1)
	slices.Sort(about)
	require.Len(t, slices.Compact(about), consumers)
	w.eventually("all requests", func() bool { _, posts := w.counts(); return posts >= consumers })
	published, posts := w.counts()
	require.Equal(t, []int{consumers, consumers}, []int{published, posts})
}

// raise raises n slow alerts of a consumer, as of a time, and hands them on to the sinks.
func (w *world) raise(a *Alerts, k durable.Consumer, n int, atMs int64) {
	w.t.Helper()
	for i := range n {
		require.NoError(w.t, w.store.RaiseAlert(context.Background(), durable.Alert{Event: durable.ConsumerSlow,
			ConsumerNo: k.No, AtMs: atMs + int64(i)}))
	}
	for {
		next, err := a.publishRound(context.Background())
		require.NoError(w.t, err)
		if next > 0 {
			return
		}
	}
}

// What waits for a sink is bounded, and one consumer has a part of it; the channel has all alerts.
func TestWhatWaitsForASinkIsBounded(t *testing.T) {
	w := newWorld(t)
	a := New(Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 { return time.Now().UnixMilli() },
		Publish: w.publish, Webhook: w, Log: slog.New(slog.DiscardHandler)})
	now := time.Now().UnixMilli()
	const part, more = (held + 2) / 3, 5
	w.raise(a, w.k, part+more, now)
	published, _ := w.counts()
	require.Equal(t, part+more, published)
	waiting := func() []durable.Alert {
		due, _, err := w.store.DueAlerts(context.Background(), durable.AlertWebhook, 1<<60, 2*held)
		require.NoError(t, err)
		return due
	}
	require.Len(t, waiting(), part)
	require.EqualValues(t, more, testutil.ToFloat64(a.dropped.WithLabelValues("webhook")))

	w.raise(a, w.consumer("other"), 3, now+held)
	require.Len(t, waiting(), part+3, "another consumer has room")
	require.EqualValues(t, more, testutil.ToFloat64(a.dropped.WithLabelValues("webhook")))
}

// A sink is given the alerts of consumers in turn: the one of a quiet consumer does not wait for those of
// a loud one.
func TestASinkIsGivenTheAlertsOfConsumersInTurn(t *testing.T) {
	w := newWorld(t)
	a := New(Options{Store: w.store, Catalogue: w.cat, NowMs: func() int64 { return time.Now().UnixMilli() },
		Publish: w.publish, Mail: w, Webhook: w, Log: slog.New(slog.DiscardHandler)})
	now := time.Now().UnixMilli()
	quiet := w.consumer("quiet")
	w.raise(a, w.k, 3*postPage, now)
	w.raise(a, quiet, 1, now+1000)
	_, err := a.webhookRound(context.Background())
	require.NoError(t, err)
	require.Len(t, w.posts, postPage)
	require.Contains(t, w.posts[:2], key(&durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: quiet.No,
		AtMs: now + 1000}))
	due, _, err := a.due(context.Background(), durable.AlertMail, now+2000, 4)
	require.NoError(t, err)
	require.Len(t, due, 4)
	require.Equal(t, quiet.No, due[1].ConsumerNo)
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
