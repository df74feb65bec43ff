package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// alarms returns a function that waits for the alerts about a channel, which must be exactly those, in turn.
func alarms(t *testing.T, s *stage, ops *sink) func(want ...string) []apitype.Alert {
	return func(want ...string) (got []apitype.Alert) {
		t.Helper()
		eventually(t, "the alerts", func() bool {
			got, _ = alertsAt(t, ops, s.channel)
			slices.SortStableFunc(got, func(a, b apitype.Alert) int { return a.At.Compare(b.At.Time) })
			return len(got) >= len(want)
		})
		require.Equal(t, want, events(got))
		return got
	}
}

// onEachStoreWithTwo runs f with two brokers on real servers, and with an embedded one.
func onEachStoreWithTwo(t *testing.T, f func(t *testing.T, w *world, brokers []*process), env ...string) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with(env...)
		brokers := []*process{w.start()}
		if w.redis != nil {
			brokers = append(brokers, w.start())
		}
		f(t, w, brokers)
	})
}

// sampled waits until each consumer was counted twice more.
func sampled() { time.Sleep(25 * time.Second) }

// A consumer that misses its objective is alerted once, by whatever broker, over a restart of all of them and a
// wiped Redis, and once when it keeps its objective again.
func TestFaultALateConsumerIsAlertedOnceOverAWipedRedis(t *testing.T) {
	onEachStoreWithTwo(t, func(t *testing.T, w *world, brokers []*process) {
		ops := newSink(t, nil)
		brokers[0].attach("ops", ops)
		s := brokers[0].stage(t, "k", "none")
		s.put(s.path("/consumer/k"), "maxAge", "2s")
		require.Equal(t, "2s", s.consumer("k").Policy.MaxAge)
		await := alarms(t, s, ops)
		s.publish("body")
		late := await("consumer.late")[0]
		require.Equal(t, "k", late.ConsumerID)
		require.Regexp(t, `^the oldest waiting job is \d.*s old; the objective is 2s; 1 job waits$`, late.Reason)
		require.Regexp(t, `^1 job waits: .*; the oldest job is \d+s old, and the objective is 2s\.$`, s.whyOf("k").Summary)
		s.change("k", "pause")
		if w.redis != nil {
			w.flushall()
		}
		for i := range brokers {
			brokers[i].stop()
			brokers[i] = w.start()
		}
		s = s.on(brokers[0])
		sampled()
		await("consumer.late")
		s.change("k", "resume")
		s.finish("k", s.awaitQueued("k", 1)[0].ID)
		over := await("consumer.late", "consumer.late.over")[1]
		require.Equal(t, "no job waits; the objective is 2s", over.Reason)
		sampled()
		await("consumer.late", "consumer.late.over")
	}, "BROKER_NO_WORKER_AFTER=1h")
}

// A pull consumer whose due jobs no worker asks for is alerted once, until one comes.
func TestAConsumerThatNobodyPollsIsAlertedUntilAWorkerComes(t *testing.T) {
	onEachStoreWithTwo(t, func(t *testing.T, w *world, brokers []*process) {
		ops := newSink(t, nil)
		brokers[0].attach("ops", ops)
		s := brokers[0].stage(t, "k", "idle")
		await := alarms(t, s, ops)
		s.finish("idle", s.newJob("idle"))
		unpolled := await("consumer.unpolled")[0]
		require.Equal(t, "k", unpolled.ConsumerID)
		require.Regexp(t, `^1 job is due, and no worker has claimed, listed, moved or renewed a job for \d.*s, since `,
			unpolled.Reason)
		s.finish("k", s.awaitQueued("k", 1)[0].ID)
		over := await("consumer.unpolled", "consumer.unpolled.over")[1]
		require.Equal(t, "k", over.ConsumerID)
		require.NotEmpty(t, over.Reason)
		sampled()
		await("consumer.unpolled", "consumer.unpolled.over")
		require.Contains(t, s.do("GET", "/metrics", "").body+brokers[len(brokers)-1].do("GET", "/metrics", "").body,
			`penstock_alerts_total{event="consumer.unpolled.over"} 1`)
	}, "BROKER_NO_WORKER_AFTER=2s")
}

// A channel without the message that is expected is alerted once, until one is stored; a pause ends it, too.
func TestASilentChannelIsAlertedUntilAMessageIsStored(t *testing.T) {
	onEachStoreWithTwo(t, func(t *testing.T, w *world, brokers []*process) {
		ops := newSink(t, nil)
		brokers[0].attach("ops", ops)
		s := brokers[0].stage(t)
		await := alarms(t, s, ops)
		s.put(s.path(), "expectEvery", "3s")
		silent := await("channel.silent")[0]
		require.Empty(t, silent.ConsumerID)
		require.Regexp(t, `^no message was stored for \d.*s, since .*Z; one is expected every 3s$`, silent.Reason)
		s.put(s.path(), "expectEvery", "1h")
		s.publish("body")
		over := await("channel.silent", "channel.silent.over")[1]
		require.NotEmpty(t, over.Reason)
		s.put(s.path(), "expectEvery", "100ms")
		await("channel.silent", "channel.silent.over", "channel.silent")
		require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
		require.Equal(t, "the channel is paused",
			await("channel.silent", "channel.silent.over", "channel.silent", "channel.silent.over")[3].Reason)
		sampled()
		await("channel.silent", "channel.silent.over", "channel.silent", "channel.silent.over")
	})
}
