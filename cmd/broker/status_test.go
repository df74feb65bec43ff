package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// told returns the events about a channel that a sink was told of, each once, and the IDs of its
// batches. A batch that came again must be the same.
func (s *stage) told(sink *sink) (events []apitype.StatusEvent, batches map[string]string) {
	s.t.Helper()
	seen := map[apitype.StatusEvent]bool{}
	batches = map[string]string{}
	for _, r := range sink.all() {
		var n apitype.StatusNotice
		strictjson.Decode(s.t, []byte(r.body), &n)
		require.Equal(s.t, "p", n.ProducerID)
		require.LessOrEqual(s.t, len(n.Events), 500)
		id := r.header.Get("X-Broker-Message-ID") + r.header.Get("webhook-id")
		if body, ok := batches[id]; ok {
			require.Equal(s.t, body, r.body, id)
		}
		batches[id] = r.body
		for _, e := range n.Events {
			if e.ChannelID == s.channel && !seen[e] {
				seen[e] = true
				events = append(events, e)
			}
		}
	}
	return events, batches
}

// about returns the names of the events of a message and consumer, in order of time.
func about(events []apitype.StatusEvent, message, consumer string) string {
	var mine []apitype.StatusEvent
	for _, e := range events {
		if strings.HasSuffix(message, "/"+e.MessageID) && e.ConsumerID == consumer {
			mine = append(mine, e)
		}
	}
	sort.SliceStable(mine, func(i, j int) bool { return mine[i].At.Before(mine[j].At.Time) })
	var names []string
	for _, e := range mine {
		names = append(names, e.Event)
	}
	return strings.Join(names, " ")
}

// hearStatus adds a push consumer of the status events.
func (p *process) hearStatus(s *sink) {
	p.t.Helper()
	p.put("/channel/~status/consumer/ops", "token", "ops-token", "callbackUrl", s.URL)
}

func TestAProducerIsToldWhatBecameOfItsMessages(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		target, ops := newSink(t, func(_ int, r received) int {
			if r.body == "dies" {
				return 503
			}
			return 204
		}), newSink(t, nil)
		p := w.with("BROKER_MAX_RETRIES=1", "BROKER_RETRY_BACKOFF=50ms").start()
		p.hearStatus(ops)
		s := p.stage(t, "push="+target.URL, "pull", "old")
		s.put(s.path("/consumer/old"), "token", "old-token", "type", "pull", "ttl", "100ms")
		silent := s.publish("silent")
		eventually(t, "a stored delivery, which nobody wanted to hear of", func() bool {
			return target.times("silent") == 1 && s.jobOf(silent, "push").Status == "DELIVERED"
		})
		require.Contains(t, s.put("/producer/p", "statusEvents", "all").body, `"StatusEvents":"all"`)
		lives, dies := s.publish("lives", "X-Broker-Message-ID", "mine"), s.publish("dies")
		done := s.queued("pull", "limit=10")
		for _, j := range done {
			s.claim("pull", j.ID)
			require.Equal(t, 202, s.move("pull", j.ID, to("DELIVERED")).status)
		}
		var got []apitype.StatusEvent
		eventually(t, "all events", func() bool {
			got, _ = s.told(ops)
			return about(got, dies, "push") == "FAILED FAILED DEAD" && about(got, lives, "push") == "DELIVERED" &&
				about(got, lives, "old") == "DEAD" && about(got, dies, "old") == "DEAD"
		})
		require.Empty(t, about(got, silent, "push"))
		for _, e := range got {
			switch {
			case e.Event == "DEAD" && e.ConsumerID == "push":
				require.Equal(t, "attempts_exhausted", e.ReasonCode)
				require.Equal(t, 503, e.Status)
				require.Equal(t, 2, e.Attempt)
			case e.Event == "DEAD":
				require.Equal(t, "expired", e.ReasonCode)
			case e.Event == "DELIVERED" && e.ConsumerID == "push":
				require.Equal(t, "mine", e.MessageID)
				require.Equal(t, 204, e.Status)
				require.Equal(t, 1, e.Attempt)
				require.NotEmpty(t, e.JobID)
			}
		}
		require.NotContains(t, s.put("/producer/p", "statusEvents", "off").body, "StatusEvents")
		for _, value := range []string{"delivered, dead", "failed,dead,delivered", "dead"} { // the last one counts
			want := map[string]string{"delivered, dead": "delivered,dead", "failed,dead,delivered": "all", "dead": "dead"}[value]
			require.Contains(t, s.put("/producer/p", "statusEvents", value).body, `"StatusEvents":"`+want+`"`)
		}
		requireProblem(t, s.do("PUT", "/producer/p", "statusEvents=read", "Content-Type", apitype.MediaForm), 400,
			"invalid_policy")
		again := s.publish("dies")
		eventually(t, "a death", func() bool {
			got, _ = s.told(ops)
			return about(got, again, "push") == "DEAD"
		})
		requireProblem(t, s.do("POST", "/channel/~status/broadcast", "{}", producerTokens...), 403, "system_channel")
	})
}

// A broker that dies between an outcome, its batch and its publication loses no event and repeats
// none under another ID. A wiped Redis changes nothing.
func TestFaultNoStatusEventIsLostOrRepeatedUnderAnotherID(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		target, ops := newSink(t, nil), newSink(t, nil)
		p := w.start()
		p.hearStatus(ops)
		p.sample("push=" + target.URL)
		p.put("/producer/p", "statusEvents", "delivered")
		p.stop()
		for i, point := range []string{failpoint.AfterOutcome + ":1", failpoint.AfterStatusBatch + ":1",
			failpoint.AfterStatusSent + ":1"} {
			p := w.start(envKill + "=" + point)
			for n := 0; !p.ended(); n = (n + 1) % 5 {
				_, _ = p.try("POST", "/channel/c/broadcast", fmt.Sprint(i, " ", n),
					append([]string{"X-Broker-Message-ID", fmt.Sprint("m-", i, "-", n)}, producerTokens...)...)
				time.Sleep(20 * time.Millisecond)
			}
		}
		p = w.start()
		s := &stage{process: p, channel: "c"}
		s.publish("before the wipe")
		if w.redis != nil {
			w.flushall()
		}
		s.publish("after it")
		stored := strings.Count(s.do("GET", "/channel/c/messages?size=100", "").body, "/message/")
		eventually(t, "all events", func() bool {
			got, batches := s.told(ops)
			events := 0
			for _, body := range batches {
				var n apitype.StatusNotice
				require.NoError(t, json.Unmarshal([]byte(body), &n))
				events += len(n.Events)
			}
			require.Equal(t, len(got), events, "an event is in one batch")
			return len(got) == stored
		})
	})
}

// The reply URL of the producer gets the events instead of the channel, signed, and again until it
// takes them.
func TestStatusEventsGoToTheReplyURL(t *testing.T) {
	parallel(t)
	var refuse atomic.Bool
	refuse.Store(true)
	target, reply := newSink(t, nil), newSink(t, func(int, received) int {
		if refuse.Load() {
			return 503
		}
		return 204
	})
	s := embeddedWorld(t).start().stage(t, "push="+target.URL)
	s.put("/producer/p", "statusEvents", "all", "replyUrl", reply.URL, "signingSecret", alertSecret)
	m := s.publish("x")
	eventually(t, "a refused try", func() bool { return reply.count() >= 1 })
	refuse.Store(false)
	eventually(t, "a second try", func() bool { return reply.count() >= 2 })
	got, batches := s.told(reply)
	require.Len(t, batches, 1, "the same batch")
	require.Equal(t, "DELIVERED", about(got, m, "push"))
	hook, err := standardwebhooks.NewWebhook(strings.TrimPrefix(alertSecret, "whsec_"))
	require.NoError(t, err)
	for _, r := range reply.all() {
		require.NoError(t, hook.Verify([]byte(r.body), r.header))
	}
	time.Sleep(2 * time.Second)
	require.Equal(t, 2, reply.count())
	require.NotContains(t, s.do("GET", "/channel/~status/messages", "").body, "/message/")
}

// untold returns the jobs of acknowledged messages of whose delivery the producer was not told.
func (s *storm) untold() (missing []string) {
	told := map[string]bool{}
	for _, r := range s.heard.all() {
		var n apitype.StatusNotice
		require.NoError(s.t, json.Unmarshal([]byte(r.body), &n), r.body)
		for _, e := range n.Events {
			told[e.Event+" "+e.ConsumerID+" "+e.MessageID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for body := range s.acked {
		for _, consumer := range []string{"push", "pull"} {
			if job := "DELIVERED " + consumer + " id-" + body; !told[job] {
				missing = append(missing, job)
			}
		}
	}
	return missing
}
