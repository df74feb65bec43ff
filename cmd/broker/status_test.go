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
	"github.com/penstock-broker/penstock/internal/model/ident"
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
// none under another ID. A wiped Redis changes nothing. It is the same on both ways.
func TestFaultNoStatusEventIsLostOrRepeatedUnderAnotherID(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		faultsAroundBatches(t, w, func(p *process, told *sink) {
			p.hearStatus(told)
			p.put("/producer/p", "statusEvents", "delivered")
		})
	})
}

func TestFaultNoStatusEventOfAReplyURLIsLostOrRepeatedUnderAnotherID(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		faultsAroundBatches(t, w, func(p *process, told *sink) {
			p.put("/producer/p", "statusEvents", "delivered", "replyUrl", told.URL)
		})
	})
}

func faultsAroundBatches(t *testing.T, w *world, subscribe func(p *process, told *sink)) {
	target, told := newSink(t, nil), newSink(t, nil)
	p := w.start()
	p.sample("push=" + target.URL)
	subscribe(p, told)
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
		got, batches := s.told(told)
		require.Equal(t, len(got), eventsIn(t, batches), "an event is in one batch")
		return len(got) == stored
	})
}

// eventsIn returns the number of events in batches.
func eventsIn(t *testing.T, batches map[string]string) (n int) {
	t.Helper()
	for _, body := range batches {
		var b apitype.StatusNotice
		require.NoError(t, json.Unmarshal([]byte(body), &b))
		n += len(b.Events)
	}
	return n
}

// batchID returns the ID of a batch as its receiver sees it: as message and as webhook.
func batchID(t *testing.T, r received) string {
	t.Helper()
	id := r.header.Get("X-Broker-Message-ID")
	require.True(t, strings.HasPrefix(id, "status-"), id)
	require.Equal(t, "~status", r.header.Get("X-Broker-Channel-ID"))
	require.Empty(t, r.header.Get("X-Broker-In-Reply-To"), "a reply has it")
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	return id
}

// The reply URL of the producer gets the events instead of the channel, signed, and again until it
// takes them.
func TestStatusEventsGoToTheReplyURL(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		var refuse atomic.Bool
		refuse.Store(true)
		target, reply := newSink(t, nil), newSink(t, func(int, received) int {
			if refuse.Load() {
				return 503
			}
			return 204
		})
		s := w.start("BROKER_RETRY_BACKOFF=100ms").stage(t, "push="+target.URL)
		s.put("/producer/p", "statusEvents", "all", "replyUrl", reply.URL, "signingSecret", alertSecret)
		m := s.publish("x")
		eventually(t, "a refused try", func() bool { return reply.count() >= 1 })
		refuse.Store(false)
		eventually(t, "another try", func() bool { return reply.count() >= 2 })
		got, batches := s.told(reply)
		require.Len(t, batches, 1, "the same batch")
		require.Equal(t, "DELIVERED", about(got, m, "push"))
		hook, err := standardwebhooks.NewWebhook(strings.TrimPrefix(alertSecret, "whsec_"))
		require.NoError(t, err)
		for _, r := range reply.all() {
			require.NoError(t, hook.Verify([]byte(r.body), r.header))
			require.Equal(t, batchID(t, r), r.header.Get("webhook-id"))
		}
		before := reply.count()
		time.Sleep(2 * time.Second)
		require.Equal(t, before, reply.count())
		require.NotContains(t, s.do("GET", "/channel/~status/messages", "").body, "/message/")
		require.Contains(t, s.do("GET", "/metrics", "").body, `penstock_status_batches_total{way="reply"} 1`)
	})
}

// deadLetters returns what the producer p did not take.
func (p *process) deadLetters() (v apitype.DeadLetters) {
	p.t.Helper()
	r := p.do("GET", "/producer/p/dlq", "", "X-Broker-Producer-Token", "p-token")
	require.Equal(p.t, 200, r.status, r.body)
	strictjson.Decode(p.t, []byte(r.body), &v)
	return v
}

// A batch that the reply URL refuses for good is a dead letter of the producer, beside the dead replies, and a
// redrive sends it.
func TestARefusedBatchIsADeadLetterOfItsProducer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		var take atomic.Bool
		target, reply := newSink(t, func(int, received) int { return 200 }), newSink(t, func(int, received) int {
			if take.Load() {
				return 204
			}
			return 400
		})
		s := w.with(quick...).start().stage(t, "push="+target.URL)
		s.put("/producer/p", "statusEvents", "all", "replyUrl", reply.URL)
		s.put(s.path("/consumer/push"), "responses", "callback")
		m := s.publish("x", "X-Broker-Message-ID", "mine")
		var dead []apitype.Job
		eventually(t, "two dead letters", func() bool {
			dead = s.deadLetters().DeadJobs
			return len(dead) == 2
		})
		sort.Slice(dead, func(i, j int) bool { return dead[i].InReplyTo < dead[j].InReplyTo })
		require.Contains(t, dead[0].MessageURL, "/message/status-")
		require.Equal(t, []string{"", "~status", ""}, []string{dead[0].InReplyTo, dead[0].ChannelID, dead[0].ConsumerID})
		require.Equal(t, 400, dead[0].StatusCode)
		require.Equal(t, []string{"mine", s.channel, "push"}, []string{dead[1].InReplyTo, dead[1].ChannelID,
			dead[1].ConsumerID})
		take.Store(true)
		refused := reply.count()
		require.Equal(t, 202, s.do("POST", "/producer/p/dlq", "requeue=p-token", "Content-Type", apitype.MediaForm).status)
		eventually(t, "both", func() bool { return reply.count() == refused+2 && len(s.deadLetters().DeadJobs) == 0 })
		var ids []string
		for _, r := range reply.all() {
			if r.header.Get("X-Broker-In-Reply-To") == "" {
				ids = append(ids, batchID(t, r))
				require.Contains(t, r.body, `"MessageID":"mine"`, m)
			}
		}
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
	})
}

// What an older release, or a broker that died, left over in status_batches goes on the way of today.
func TestALeftoverBatchIsPublishedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		reply := newSink(t, nil)
		p := w.start()
		p.sample()
		p.put("/producer/p", "replyUrl", reply.URL)
		p.stop()
		exec := w.storeExec(t)
		ids := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
		var want []string
		for range 40 { // more than are read at once
			id := ids.Next()
			want = append(want, "status-"+id.String())
			exec(`INSERT INTO status_batches (id, producer_no, body) SELECT ?, no, ? FROM producers`, id[:],
				[]byte(`{"ProducerID":"p","Events":[]}`))
		}
		p = w.start()
		eventually(t, "all batches", func() bool { return reply.count() == len(want) })
		var got []string
		for _, r := range reply.all() {
			got = append(got, batchID(t, r))
		}
		require.ElementsMatch(t, want, got)
		p.stop()
		var left int
		require.NoError(t, w.openStore().QueryRow(`SELECT COUNT(*) FROM status_batches`).Scan(&left))
		require.Zero(t, left)
	})
}

// Producers whose reply URLs hang, and whose batches could fill all slots for deliveries, delay nobody
// else's events.
func TestReplyURLsThatHangDelayNoOtherProducersEvents(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		hangs, target, reply := newHanging(t, false), newSink(t, nil), newSink(t, nil)
		s := w.start("BROKER_DELIVERY_TIMEOUT=4m", "BROKER_PUSH_CONCURRENCY=32").stage(t, "push="+target.URL)
		var all []string
		for i := range 20 {
			all = append(all, fmt.Sprint(s.channel, "-hangs-", i))
			s.put("/producer/"+all[i], "token", all[i]+"-token", "replyUrl", hangs.URL, "statusEvents", "all")
			s.publishAs(all[i], "first")
		}
		eventually(t, "the attack", func() bool { return hangs.now.Load() >= 20 })
		s.put("/producer/p", "statusEvents", "all", "replyUrl", reply.URL)
		for i := range 5 {
			for _, other := range all {
				s.publishAs(other, "more")
			}
			m := s.publish(fmt.Sprint("m", i))
			eventually(t, "the event", func() bool {
				got, _ := s.told(reply)
				return about(got, m, "push") == "DELIVERED"
			})
		}
		require.GreaterOrEqual(t, hangs.now.Load(), int64(20), "they still hang")
		hangs.end()
	})
}

// Two brokers share the producers. One of them is killed, and no event is lost or in two batches.
func TestFaultTwoBrokersSendEachStatusEventInOneBatch(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	target, reply := newSink(t, nil), newSink(t, nil)
	brokers := []*process{w.start(), w.start()}
	s := brokers[0].stage(t, "push="+target.URL)
	s.put("/producer/p", "statusEvents", "delivered", "replyUrl", reply.URL)
	const each = 20
	for i := range 3 * each {
		on := s.on(brokers[i%2])
		if i >= 2*each {
			on = s
		}
		on.publish(fmt.Sprint("m", i))
		time.Sleep(50 * time.Millisecond)
		if i == 2*each-1 {
			brokers[1].kill()
		}
	}
	eventually(t, "all events", func() bool {
		got, batches := s.told(reply)
		require.Equal(t, len(got), eventsIn(t, batches), "an event is in one batch")
		return len(got) == 3*each
	})
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
