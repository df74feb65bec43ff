package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireFull requires the refusal of a producer that stores as much as it may.
func requireFull(t *testing.T, way string, r reply) {
	t.Helper()
	if strings.HasPrefix(r.body, `{"Status"`) {
		require.Contains(t, r.body, `{"Status":429,"code":"producer_full"`, way)
		return
	}
	require.Equal(t, 429, r.status, way+": "+r.body)
	require.Contains(t, r.body, `"producer_full"`, way)
	require.NotEmpty(t, r.header.Get("Retry-After"), way)
}

func TestAProducerThatStoresAsMuchAsItMayIsRefusedOnEveryWayIn(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms")
		p := w.start()
		p.sample("k")
		p.put("/channel/c/consumer/k", "responses", "store")
		p.put("/channel/other", "token", "c-token")
		p.put("/producer/neighbour", "token", "p-token")
		shown := func() map[string]any { return p.do("GET", "/producer/p", "").json(t) }
		require.NotContains(t, shown(), "MaxStoredBytes")
		kilobyte := strings.Repeat("x", 1000)
		post := func(path, body string, headers ...string) reply {
			return p.do("POST", path, body, append(append([]string{}, producerTokens...), headers...)...)
		}
		require.Equal(t, 201, post("/channel/other/broadcast", kilobyte).status, "before it has a bound")
		p.put("/producer/p", "maxStoredBytes", "4500")
		require.Equal(t, "4500", shown()["MaxStoredBytes"])
		for range 3 {
			require.Equal(t, 201, post("/channel/other/broadcast", kilobyte).status)
		}
		counted := func() { // the message is stored once at most, until it is refused
			t.Helper()
			eventually(t, "what was stored before is counted", func() bool {
				return post("/channel/other/broadcast", kilobyte[:501], "X-Broker-Message-ID", "m").status == 429
			})
		}
		counted()
		at := time.Now().Add(time.Hour).Format(time.RFC3339)
		const ndjson = "application/x-ndjson"
		full := func() {
			t.Helper()
			requireFull(t, "a message", post("/channel/c/broadcast", kilobyte))
			requireFull(t, "a request", post("/channel/c/request", kilobyte, "Prefer", "wait=0"))
			requireFull(t, "a schedule", post("/channel/c/broadcast", kilobyte, "X-Broker-Scheduled-For", at))
			requireFull(t, "an event", post("/channel/c/broadcast",
				`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"`+kilobyte+`"}`, "Content-Type",
				"application/cloudevents+json"))
			requireFull(t, "a line", post("/channel/c/batch", `{"Payload":"`+kilobyte+`"}`, "Content-Type", ndjson))
			requireFull(t, "a line with a time", post("/channel/c/batch", `{"Payload":"`+kilobyte+`","ScheduledFor":"`+at+`"}`,
				"Content-Type", ndjson))
			requireFull(t, "a bulk", post("/channel/c/bulk", `{"Payload":"`+kilobyte+`"}`, "Content-Type", ndjson))
		}
		full()
		p.put("/channel/c", "ack", "journal")
		requireFull(t, "a message of the journal", post("/channel/c/broadcast", kilobyte))
		p.put("/channel/c", "ack", "")
		neighbour := append([]string{}, producerTokens...)
		neighbour[3] = "neighbour"
		require.Equal(t, 201, p.do("POST", "/channel/c/broadcast", kilobyte, neighbour...).status)

		p.stop()
		p = w.start()
		counted()
		full()
		require.Equal(t, 204, p.do("DELETE", "/channel/other", "").status)
		eventually(t, "room after the removal", func() bool { return post("/channel/c/broadcast", kilobyte).status == 201 })
		p.put("/producer/p", "maxStoredBytes", "0")
		require.Equal(t, "0", shown()["MaxStoredBytes"])
		for range 5 {
			require.Equal(t, 201, post("/channel/c/broadcast", kilobyte).status)
		}
		for _, value := range []string{"-1", "+1", "1.5", "x", "1125899906842625"} {
			r := p.do("PUT", "/producer/p", "maxStoredBytes="+strings.ReplaceAll(value, "+", "%2B"), "Content-Type",
				"application/x-www-form-urlencoded")
			require.Equal(t, 400, r.status, value)
		}
	})
}

func TestAProducerHasABoundOfSchedulesThatWait(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_PRODUCER_MAX_SCHEDULED=3", "BROKER_RATIONAL_DELAY=500ms")
		p := w.start()
		p.sample("k")
		require.Equal(t, "3", p.do("GET", "/producer/p", "").json(t)["MaxScheduled"])
		at := time.Now().Add(time.Hour).Format(time.RFC3339)
		var paths []string
		for i := range 3 {
			r := p.broadcast("x", "X-Broker-Scheduled-For", at, "X-Broker-Message-ID", fmt.Sprint("m", i))
			require.Equal(t, 201, r.status, r.body)
			paths = append(paths, r.header.Get("Location"))
		}
		requireFull(t, "a schedule", p.broadcast("x", "X-Broker-Scheduled-For", at))
		requireFull(t, "a recurrence", p.broadcast("x", "X-Broker-Recurrence", "cron:0 0 1 1 *"))
		requireFull(t, "a line", p.do("POST", "/channel/c/batch", `{"Payload":"x","ScheduledFor":"`+at+`"}`,
			append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...))
		require.Equal(t, 201, p.broadcast("now").status)
		p.stop()
		p = w.start()
		eventually(t, "the schedules are counted", func() bool {
			r := p.broadcast("x", "X-Broker-Scheduled-For", at, "X-Broker-Message-ID", "m0")
			return r.status == 429
		})
		require.Equal(t, 204, p.do("DELETE", paths[2], "", producerTokens...).status)
		eventually(t, "room for one", func() bool {
			return p.broadcast("x", "X-Broker-Scheduled-For", at, "X-Broker-Message-ID", "m3").status == 201
		})
		requireFull(t, "a schedule", p.broadcast("x", "X-Broker-Scheduled-For", at))
		p.put("/producer/p", "maxScheduled", "4")
		require.Equal(t, 201, p.broadcast("x", "X-Broker-Scheduled-For", at).status)
		requireFull(t, "a schedule", p.broadcast("x", "X-Broker-Scheduled-For", at))
	})
}

// Brokers know what the others have stored after some seconds.
func TestRealBrokersShareTheBoundOfAProducer(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_PRODUCER_MAX_STORED=64KiB", "BROKER_RATIONAL_DELAY=500ms")
	brokers := []*process{w.start(), w.start()}
	brokers[0].sample("k")
	stored := 0
	for i, refused := 0, 0; refused < 2; i++ {
		r := brokers[i%2].broadcast(strings.Repeat("x", 1<<10))
		if refused++; r.status == 201 {
			stored, refused = stored+1, 0
		}
		require.Less(t, i, 10_000)
		time.Sleep(20 * time.Millisecond)
	}
	require.GreaterOrEqual(t, stored, 64)
	require.LessOrEqual(t, stored, 128+2)
	for _, p := range brokers {
		eventually(t, "the bound on each broker", func() bool {
			return p.broadcast(strings.Repeat("x", 1<<10)).status == 429
		})
	}
}

// Messages of a recurrence are more and more that their producer stores: they wait for room, which is
// visible, and are sent once there is some. A message that was scheduled alone is sent.
func TestMessagesOfARecurrenceWaitForRoom(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RATIONAL_DELAY=500ms")
		p := w.start()
		p.sample("k")
		s := &stage{process: p, channel: "c"}
		p.put("/producer/p", "maxStoredBytes", "3500")
		kilobyte := strings.Repeat("x", 1000)
		alone := s.later(in(lead), kilobyte)
		r := s.post(kilobyte, "X-Broker-Recurrence", "R/"+in(lead)+"/PT1S")
		require.Equal(t, 201, r.status, r.body)
		at := r.header.Get("Location")
		eventually(t, "a message that waits for room", func() bool {
			m := s.scheduled(at)
			return strings.Contains(m.Reason, "producer_full") && time.Until(m.DispatchSchedule.Time) > 2*time.Second
		})
		m := s.scheduled(at)
		require.Equal(t, "SCHEDULED", m.Status)
		require.LessOrEqual(t, m.Occurrence, 3)
		eventually(t, "the message that was scheduled alone", func() bool {
			return s.scheduled(alone).Status == "DISPATCHED"
		})
		require.LessOrEqual(t, s.counts().Counts.Dispatched.Count, 3,
			"the alone one, and those of the recurrence that had room")
		require.Contains(t, p.log.String(), "messages of recurrences wait")
		postponed, err := p.metric("penstock_scheduled_postponed_total")
		require.NoError(t, err)
		require.Positive(t, postponed)
		requireFull(t, "a message", p.broadcast(kilobyte))

		p.put("/producer/p", "maxStoredBytes", "0")
		eventually(t, "the recurrence goes on", func() bool { return s.scheduled(at).Occurrence > m.Occurrence })
		require.Empty(t, s.scheduled(at).Reason)
	})
}
