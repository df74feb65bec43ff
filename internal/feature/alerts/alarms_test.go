package alerts

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A lookout is a world with watches of brokers, and a clock.
type lookout struct {
	*world
	now    time.Time
	sample *sampler.Sample
	heard  time.Time // the last contact of workers
	deaf   error     // Redis does not say
	why    int       // jobs that no worker asks for, as why says
	asks   int
	book   *policy.Book
	keep   time.Duration // retention
}

func newLookout(t *testing.T) *lookout {
	l := &lookout{world: newWorld(t), now: time.Now().Truncate(time.Millisecond), book: policy.NewBook(policy.Policy{})}
	l.jobs(sampler.Level{Known: true})
	return l
}

func (l *lookout) Latest() *sampler.Sample     { return l.sample }
func (l *lookout) Watch(func(*sampler.Sample)) {}

func (l *lookout) LastContact(context.Context, uint32) (claim, contact, renewal time.Time, workers int, err error) {
	return l.heard, l.heard, time.Time{}, 0, l.deaf
}

// jobs makes the next sample, of the consumer k.
func (l *lookout) jobs(level sampler.Level) {
	l.sample = &sampler.Sample{At: l.now, Of: map[uint32]sampler.Level{l.k.No: level}}
}

// broker returns the watch of a new broker.
func (l *lookout) watcher() *watch {
	a := New(Options{Store: l.store, Catalogue: l.cat, NowMs: func() int64 { return l.now.UnixMilli() },
		Log: slog.New(slog.DiscardHandler)})
	return newWatch(a, Alarms{Samples: l, Policies: l.book, Contacts: l, NoWorkerAfter: time.Minute, Retention: l.keep,
		NoWorker: func(context.Context, *catalogue.Channel, *durable.Consumer) (apitype.WhyReason, bool) {
			l.asks++
			return apitype.WhyReason{Jobs: l.why, Since: &apitype.Time{Time: l.now.Add(-61 * time.Second)}}, l.why > 0
		}})
}

// round has a broker look, some time later.
func (l *lookout) round(w *watch, after time.Duration, level sampler.Level) {
	l.t.Helper()
	l.now = l.now.Add(after)
	if !level.Oldest.IsZero() {
		level.Waiting = max(level.Waiting, 1)
	}
	l.jobs(level)
	_, err := w.round(context.Background())
	require.NoError(l.t, err)
}

// alerted are the alerts so far, as "event: reason".
func (l *lookout) alerted() (all []string) {
	l.t.Helper()
	due, _, err := l.store.DueAlerts(context.Background(), durable.AlertChannel, 1<<60, 100)
	require.NoError(l.t, err)
	for _, a := range due {
		all = append(all, a.Event.String()+": "+a.Reason)
	}
	return all
}

// set changes the policy of the consumer k.
func (l *lookout) set(name, value string) {
	l.t.Helper()
	_, _, err := l.store.PutConsumer(context.Background(), durable.ConsumerPut{Put: durable.Put{ID: "k"}, ChannelID: "c",
		Policy: func(record string) (string, error) {
			return l.book.Merge(record, map[string]string{name: value}, time.Now())
		}})
	require.NoError(l.t, err)
	require.NoError(l.t, l.cat.Refresh(context.Background()))
}

// expect changes how often messages are expected in the channel c.
func (l *lookout) expect(every string) {
	l.t.Helper()
	intake := func(record string) (string, error) {
		return policy.MergeIntake(record, map[string]string{"expectEvery": every})
	}
	_, _, err := l.store.PutChannel(context.Background(), durable.Put{ID: "c", Intake: intake})
	require.NoError(l.t, err)
	require.NoError(l.t, l.cat.Refresh(context.Background()))
}

func (l *lookout) state(from, to durable.ConsumerState) {
	l.t.Helper()
	_, changed, err := l.store.SetConsumerState(context.Background(), durable.StateChange{ConsumerNo: l.k.No, To: to,
		From: []durable.ConsumerState{from}})
	require.NoError(l.t, err)
	require.True(l.t, changed)
	require.NoError(l.t, l.cat.Refresh(context.Background()))
}

func (l *lookout) waits(age time.Duration) sampler.Level {
	return sampler.Level{Known: true, Waiting: 3, Oldest: l.now.Add(10 * time.Second).Add(-age)}
}

const tick = 10 * time.Second

func TestALateConsumerIsAlertedOnceUntilItIsInTime(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	l.round(w, tick, l.waits(time.Hour))
	require.Empty(t, l.alerted(), "no objective is set")
	l.set("maxAge", "5m")
	l.round(w, tick, l.waits(5*time.Minute))
	require.Empty(t, l.alerted())
	l.round(w, tick, sampler.Level{Waiting: 3, Oldest: l.now.Add(-time.Hour)})
	require.Empty(t, l.alerted(), "Redis has not answered")
	l.round(w, tick, l.waits(12*time.Minute))
	opened := []string{"consumer.late: the oldest waiting job is 12m old; the objective is 5m; 3 jobs wait"}
	require.Equal(t, opened, l.alerted())
	for range 3 {
		l.round(w, tick, l.waits(20*time.Minute))
	}
	l.round(w, tick, sampler.Level{})                            // Redis does not answer
	l.round(w, tick, sampler.Level{Known: true, AtLeast: true})  // it was wiped, and is not loaded yet
	l.round(w, 2*time.Minute, sampler.Level{})                   // Redis does not answer
	l.round(w, tick, sampler.Level{Known: true, InFlight: 1})    // the job is under way
	l.round(w, tick, l.waits(20*time.Minute))                    // and has failed
	other := l.watcher()                                         // of a broker that takes over
	l.round(other, tick, sampler.Level{Known: true, Waiting: 0}) // it does not know for how long
	l.round(other, tick, l.waits(21*time.Minute))                // it is still late
	require.Equal(t, opened, l.alerted(), "it is open all the time")
	for range 7 {
		l.round(other, tick, l.waits(time.Minute))
	}
	closed := append(opened, "consumer.late.over: the oldest waiting job is 1m old; the objective is 5m")
	require.Equal(t, closed, l.alerted())
	l.round(w, tick, l.waits(time.Minute))
	l.round(w, tick, l.waits(6*time.Minute))
	require.Len(t, l.alerted(), 3, "late again")
}

func TestTheAlarmOfALateConsumerEndsWithItsObjectiveAndWithTheConsumer(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	l.set("maxAge", "1s")
	l.state(durable.StateActive, durable.StatePaused)
	l.round(w, tick, l.waits(90*time.Second))
	want := []string{"consumer.late: the oldest waiting job is 1m30s old; the objective is 1s; 3 jobs wait; the " +
		"consumer is PAUSED"}
	require.Equal(t, want, l.alerted(), "a paused consumer is late all the same")
	l.set("maxAge", "2s")
	l.round(w, tick, l.waits(90*time.Second))
	require.Equal(t, want, l.alerted(), "it misses the new objective, too")
	l.set("maxAge", "0")
	l.round(w, tick, l.waits(90*time.Second))
	want = append(want, "consumer.late.over: the consumer has no objective (maxAge) any more")
	require.Equal(t, want, l.alerted())
	l.set("maxAge", "1s")
	l.round(w, tick, l.waits(time.Hour))
	l.set("maxAge", "2h")
	l.round(w, tick, l.waits(time.Hour))
	l.round(w, tick, l.waits(time.Hour))
	require.Len(t, l.alerted(), 3, "the new objective has its time")
	l.round(w, time.Minute, l.waits(time.Hour))
	require.Equal(t, "consumer.late.over: the oldest waiting job is 1h0m50s old; the objective is 2h", l.alerted()[3])
	l.set("maxAge", "1s")
	l.round(w, tick, l.waits(time.Hour))
	_, err := l.store.DeleteConsumer(context.Background(), "c", durable.Put{ID: "k"})
	require.NoError(t, err)
	require.NoError(t, l.cat.Refresh(context.Background()))
	for range 2 {
		l.round(w, tick, sampler.Level{})
	}
	require.Equal(t, "consumer.late.over: the consumer was deleted", l.alerted()[5])
	require.Len(t, l.alerted(), 6)
}

func TestAConsumerThatNobodyPollsIsAlertedOnceUntilAWorkerComes(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	due := sampler.Level{Known: true, Waiting: 5, Delayed: 2}
	l.why = 3
	l.round(w, tick, sampler.Level{Known: true, Waiting: 2, Delayed: 2})
	l.round(w, tick, sampler.Level{Waiting: 5})
	l.heard = l.now.Add(-50 * time.Second)
	l.round(w, 0, due)
	l.deaf = errors.New("away")
	l.round(w, tick, due)
	l.deaf = nil
	require.Zero(t, l.asks, "nothing speaks for it")
	l.round(w, tick, due)
	require.Len(t, l.alerted(), 1)
	require.Regexp(t, `^consumer.unpolled: 3 jobs are due, and no worker has claimed, listed, moved or renewed a job for `+
		`1m1s, since 20.*Z$`, l.alerted()[0])
	l.heard = time.Time{} // a wiped Redis has forgotten it
	for range 10 {
		l.round(w, tick, due)
		l.round(l.watcher(), 0, due)
	}
	require.Len(t, l.alerted(), 1)
	l.heard = l.now
	l.round(w, tick, due)
	require.True(t, strings.HasPrefix(l.alerted()[1], "consumer.unpolled.over: a worker asked for jobs, at "))
	l.round(w, tick, due)
	require.Len(t, l.alerted(), 2)
	l.round(w, time.Minute, due)
	require.Len(t, l.alerted(), 3, "it has gone again")
	l.state(durable.StateActive, durable.StatePaused)
	l.round(w, tick, due)
	require.Equal(t, "consumer.unpolled.over: the consumer is PAUSED", l.alerted()[3])
	l.round(w, tick, due)
	require.Len(t, l.alerted(), 4)
	l.state(durable.StatePaused, durable.StateActive)
	l.round(w, tick, due)
	require.Len(t, l.alerted(), 5, "nobody has come meanwhile")
	l.round(w, tick, sampler.Level{Known: true, AtLeast: true})
	require.Len(t, l.alerted(), 5)
	l.round(w, tick, sampler.Level{Known: true})
	require.Equal(t, "consumer.unpolled.over: no due job waits", l.alerted()[5])
}

// A broker that starts, or whose Redis was wiped, does not take what it has not heard for what nobody said.
func TestABrokerThatHasHeardNothingWaitsBeforeItSaysThatNobodyPolls(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	l.why = 1
	due := sampler.Level{Known: true, Waiting: 1}
	for range 6 {
		l.round(w, tick, due)
	}
	require.Empty(t, l.alerted())
	l.round(w, tick, due)
	require.Len(t, l.alerted(), 1)
}

func TestASilentChannelIsAlertedOnceUntilAMessageIsStored(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	none := sampler.Level{Known: true}
	store := func() {
		m := &durable.Message{ChannelNo: l.k.ChannelNo, ContentType: "text/plain", Payload: []byte("x")}
		require.NoError(t, l.publish(context.Background(), m))
		l.now = m.ID.Time()
	}
	l.now = l.now.Add(-5 * time.Hour)
	l.round(w, time.Hour, none)
	l.expect("10m")
	l.round(w, time.Hour, none)
	require.Empty(t, l.alerted(), "silence counts from the setting")
	l.round(w, 9*time.Minute, none)
	require.Empty(t, l.alerted())
	other := l.watcher() // of another broker
	l.round(other, 2*time.Minute, none)
	l.round(w, tick, none)
	require.Len(t, l.alerted(), 1)
	require.Regexp(t, `^channel.silent: no message was stored for 11m, since 20.*Z; one is expected every 10m$`,
		l.alerted()[0])
	l.expect("12m")
	l.round(w, 0, none)
	require.Equal(t, "channel.silent.over: the channel has been silent for 11m10s; one is expected every 12m",
		l.alerted()[1])
	l.round(w, tick, none)
	require.Len(t, l.alerted(), 2)

	l.now = time.Now()
	store()
	l.expect("100ms")
	l.round(w, 150*time.Millisecond, none)
	require.Len(t, l.alerted(), 3)
	l.eventually("a later millisecond than the alarm's", func() bool { return time.Since(l.now) >= time.Millisecond })
	store()
	l.round(w, time.Millisecond, none)
	require.Len(t, l.alerted(), 4)
	require.Regexp(t, `^channel.silent.over: a message was stored at 20.*; one is expected every 100ms$`, l.alerted()[3])
	l.round(w, 2*time.Second, none)
	require.Len(t, l.alerted(), 5)
	l.expect("")
	l.round(w, tick, none)
	require.Equal(t, "channel.silent.over: messages are not expected (expectEvery) any more", l.alerted()[5])
	rhythms, err := l.store.Rhythms(context.Background())
	require.NoError(t, err)
	require.Empty(t, rhythms)
}

func TestAPausedChannelIsNotSilent(t *testing.T) {
	l := newLookout(t)
	w := l.watcher()
	none := sampler.Level{Known: true}
	pause := func(paused bool) {
		t.Helper()
		_, changed, err := l.store.SetChannelPaused(context.Background(), "c", paused)
		require.NoError(t, err)
		require.True(t, changed)
		require.NoError(t, l.cat.Refresh(context.Background()))
	}
	l.now = l.now.Add(-5 * time.Hour)
	l.expect("10m")
	l.round(w, tick, none)
	l.round(w, 11*time.Minute, none)
	require.Len(t, l.alerted(), 1)
	pause(true)
	l.round(w, tick, none)
	require.Equal(t, "channel.silent.over: the channel is paused", l.alerted()[1])
	l.round(w, time.Hour, none)
	require.Len(t, l.alerted(), 2)
	l.now = time.Now()
	pause(false)
	l.round(w, 9*time.Minute, none)
	require.Len(t, l.alerted(), 2, "silence counts from the end of the pause")
	l.round(w, 2*time.Minute, none)
	require.Len(t, l.alerted(), 3)
	_, err := l.store.DeleteConsumer(context.Background(), "c", durable.Put{ID: "k"})
	require.NoError(t, err)
	_, err = l.store.DeleteChannel(context.Background(), durable.Put{ID: "c"})
	require.NoError(t, err)
	require.NoError(t, l.cat.Refresh(context.Background()))
	l.round(w, tick, none)
	require.Equal(t, "channel.silent.over: the channel was deleted", l.alerted()[3])
	l.round(w, tick, none)
	require.Len(t, l.alerted(), 4)
}

// Retention may remove the newest message before silence is an alarm: its time is kept.
func TestWhatRetentionRemovesStillBreaksTheSilence(t *testing.T) {
	l := newLookout(t)
	l.keep = time.Hour
	l.expect("3h")
	m := &durable.Message{ChannelNo: l.k.ChannelNo, ContentType: "text/plain", Payload: []byte("x")}
	l.round(l.watcher(), -2*time.Hour, sampler.Level{})
	l.now = time.Now()
	require.NoError(t, l.publish(context.Background(), m))
	l.round(l.watcher(), 2*time.Minute, sampler.Level{})
	rhythms, err := l.store.Rhythms(context.Background())
	require.NoError(t, err)
	require.Equal(t, []durable.Rhythm{{ChannelNo: l.k.ChannelNo, SinceMs: m.ID.Millis()}}, rhythms)
	require.Empty(t, l.alerted())
}

func TestOneBrokerLooksForAlarms(t *testing.T) {
	l := newLookout(t)
	l.set("maxAge", "1s")
	w := l.watcher()
	w.Owns = func(uint32) bool { return false }
	l.round(w, tick, l.waits(time.Hour))
	require.Empty(t, l.alerted())
	w.Owns = nil
	l.sample.At = l.sample.At.Add(-time.Minute)
	_, err := w.round(context.Background())
	require.NoError(t, err)
	require.Empty(t, l.alerted(), "the sample is old")
	l.round(w, tick, l.waits(time.Hour))
	require.Len(t, l.alerted(), 1)
}
