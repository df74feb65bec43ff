package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// delete deletes what the path names.
func (s *stage) delete(path string) {
	s.t.Helper()
	r := s.do("DELETE", path, "")
	require.Equal(s.t, 204, r.status, r.body)
	require.Empty(s.t, r.body)
}

// Producers, channels, consumers and dead letters can be deleted, on both kinds of stores.
func TestDeletion(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s",
			"BROKER_RETRY_BACKOFF=100ms",
			"BROKER_MAX_RETRIES=0", "BROKER_CONSUMER_CONCURRENCY=2")
		for name, story := range map[string]func(*testing.T, *process){
			"a push consumer":     deletedPushConsumer,
			"a pull consumer":     deletedPullConsumer,
			"a producer":          deletedProducer,
			"dead letters":        deletedDeadLetters,
			"an ordered consumer": deletedOrderedConsumer,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func deletedPushConsumer(t *testing.T, p *process) {
	old, free := newHeldSink(t, 204)
	stays := newSink(t, nil)
	s := p.stage(t, "k="+old.URL, "stays="+stays.URL)
	var at []string
	for i := range 10 {
		at = append(at, s.publish(fmt.Sprint("before ", i)))
	}
	eventually(t, "two requests", func() bool { return old.count() == 2 })
	s.delete(s.path("/consumer/k"))
	requireProblem(t, s.do("DELETE", s.path("/consumer/k"), ""), 404, "consumer_not_found")
	requireProblem(t, s.do("GET", s.path("/consumer/k"), ""), 404, "consumer_not_found")
	again := newSink(t, nil)
	s.join("k=" + again.URL)
	after := s.publish("after")
	free()

	// The requests that were in flight count; no other one begins.
	statuses := func() (all []string) {
		for _, l := range at {
			j := s.message(l).Jobs[0]
			require.Equal(t, "k", j.ConsumerID)
			all = append(all, strings.TrimSpace(j.Status+" "+j.ReasonCode))
		}
		slices.Sort(all)
		return all
	}
	want := append(slices.Repeat([]string{"DEAD consumer_deleted"}, 8), "DELIVERED", "DELIVERED")
	eventually(t, "the outcomes of the requests in flight", func() bool { return slices.Equal(want, statuses()) })
	m := s.awaitStatus(after, "DELIVERED")
	require.Len(t, m.Jobs, 2)
	require.Equal(t, "stays", m.Jobs[0].ConsumerID)
	eventually(t, "all messages at the other consumer", func() bool { return stays.distinct() == 11 })
	s.awaitRest(again)
	require.Equal(t, 1, again.count(), "nothing from before")
	require.Equal(t, 2, old.count())
}

func deletedPullConsumer(t *testing.T, p *process) {
	s := p.stage(t, "k")
	held := s.newJob("k")
	lease := s.claim("k", held)
	polled := make(chan reply)
	go func() {
		r, err := s.try("POST", s.path("/consumer/k/claim?wait=20"), "", consumerTokens("k")...)
		if err != nil {
			r.body = err.Error()
		}
		polled <- r
	}()
	time.Sleep(300 * time.Millisecond) // it waits
	s.delete(s.path("/consumer/k"))
	requireProblem(t, <-polled, 401, "consumer_not_found")
	at := s.publish("for nobody")
	require.Empty(t, s.message(at).Jobs)
	for _, r := range []reply{
		s.do("POST", s.path("/consumer/k/claim"), "", consumerTokens("k")...),
		s.do("GET", s.path("/consumer/k/queued-jobs"), "", consumerTokens("k")...),
		s.move("k", held, to("DELIVERED"), "X-Broker-Lease", lease),
	} {
		requireProblem(t, r, 401, "consumer_not_found")
	}
	s.join("k")
	require.Empty(t, s.queued("k", ""))
	requireProblem(t, s.move("k", held, to("DELIVERED"), "X-Broker-Lease", lease), 401, "job_of_other_consumer")
	job := s.newJob("k")
	require.NotEqual(t, held, job)
	s.claim("k", job)
}

// The retention of this broker is long, so nothing but the deletion removes messages.
func TestADeletedChannelTakesItsMessagesWithIt(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		deletedChannel(t, w.start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms"))
	})
}

func deletedChannel(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i := range 5 {
		s.publish("old", "X-Broker-Message-ID", fmt.Sprint("m", i), "X-Broker-Message-Priority", "3", "X-Broker-Ordering-Key",
			"key", "X-Broker-Message-TTL", "1h")
	}
	s.awaitQueued("k", 5)
	requireProblem(t, s.do("DELETE", s.path(), ""), 409, "channel_has_consumers")
	s.delete(s.path("/consumer/k"))
	before := s.gauge(t, "penstock_purged_messages_total")
	s.delete(s.path())
	requireProblem(t, s.post("late"), 404, "channel_not_found")
	requireProblem(t, s.do("POST", s.path("/consumer/k/claim"), "", consumerTokens("k")...), 404, "channel_not_found")
	requireProblem(t, s.do("DELETE", s.path(), ""), 404, "channel_not_found")

	s.put(s.path(), "token", "c-token")
	s.join("k")
	require.Equal(t, 404, s.do("GET", s.path("/message/m0"), "").status)
	require.Empty(t, s.queued("k", ""))
	s.publish("new", "X-Broker-Message-ID", "m0")
	require.Equal(t, "new", s.awaitQueued("k", 1)[0].Message.Payload)
	eventually(t, "the old messages to be removed", func() bool {
		return s.gauge(t, "penstock_purged_messages_total") >= before+5
	})
}

func deletedProducer(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put("/producer/leaves", "token", "l-token")
	as := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "leaves", "X-Broker-Producer-Token",
		"l-token"}
	post := func() reply { return s.do("POST", s.path("/broadcast"), "body", as...) }
	r := post()
	require.Equal(t, 201, r.status, r.body)
	s.delete("/producer/leaves")
	requireProblem(t, post(), 401, "producer_not_found")
	requireProblem(t, s.do("POST", s.path("/batch"), `{"Payload":"a"}`+"\n",
		append([]string{"Content-Type", "application/x-ndjson"}, as...)...), 401, "producer_not_found")
	require.Equal(t, "leaves", s.message(r.header.Get("Location")).ProducedBy)
	s.publish("of another one")
	s.put("/producer/leaves", "token", "l-token")
	require.Equal(t, 201, post().status)
	s.awaitQueued("k", 3)
}

func deletedDeadLetters(t *testing.T, p *process) {
	sink := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "k="+sink.URL)
	var at []string
	for i := range 5 {
		at = append(at, s.publish(fmt.Sprint("bad ", i)))
	}
	for _, l := range at {
		s.awaitStatus(l, "DEAD")
	}
	dead := s.dead("k", 100)
	require.Len(t, dead, 5)
	one := s.path("/consumer/k/job/", dead[0].ID)
	s.delete(one)
	requireProblem(t, s.do("DELETE", one, ""), 404, "job_not_found")
	require.Len(t, s.dead("k", 100), 4)
	s.delete(s.path("/consumer/k/dlq"))
	require.Empty(t, s.dead("k", 100))
	require.Zero(t, *s.counted("k").DeadLetters)
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	s.awaitRest(sink)
	require.Equal(t, 5, sink.count())
	for _, l := range at {
		require.Equal(t, "DEAD", s.message(l).Jobs[0].Status)
	}
}

// The order of the other consumers does not depend on the deleted one.
func deletedOrderedConsumer(t *testing.T, p *process) {
	s := p.stage(t, "k", "other")
	for _, k := range []string{"k", "other"} {
		s.put(s.path("/consumer/", k), "ordered", "true")
	}
	for i := range 3 {
		s.publish(fmt.Sprint("m", i), "X-Broker-Ordering-Key", "key")
	}
	s.claim("k", s.awaitQueued("k", 1)[0].ID)
	s.delete(s.path("/consumer/k"))
	s.join("k")
	s.put(s.path("/consumer/k"), "ordered", "true")
	s.publish("m3", "X-Broker-Ordering-Key", "key")
	require.Equal(t, "m3", s.awaitQueued("k", 1)[0].Message.Payload, "it has no job of the message before")
	for i := range 4 {
		j := s.awaitQueued("other", 1)[0]
		require.Equal(t, fmt.Sprint("m", i), j.Message.Payload)
		s.claim("other", j.ID)
		require.Equal(t, 202, s.move("other", j.ID, to("DELIVERED")).status)
	}
}

// Neither open jobs nor dead letters of a deleted consumer keep a message from its removal. The test
// takes as long as the shortest retention: as a subtest of TestDeletion it would begin last of all.
func TestDeletedConsumersKeepNoMessages(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		deletedConsumersKeepNothing(t, w.start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms",
			"BROKER_DELIVERY_TIMEOUT=5s",
			"BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=0", "BROKER_RETENTION=60500ms"))
	})
}

func deletedConsumersKeepNothing(t *testing.T, p *process) {
	refuses := newSink(t, func(int, received) int { return 500 })
	s := p.stage(t, "k", "dies="+refuses.URL)
	at, kept := s.publish("body"), ""
	s.awaitQueued("k", 1)
	eventually(t, "the dead letter", func() bool { return s.message(at).Jobs[1].Status == "DEAD" })
	s.join("stays")
	kept = s.publish("body")
	s.delete(s.path("/consumer/k"))
	s.delete(s.path("/consumer/dies"))
	eventually(t, "the removal of the message", func() bool { return s.do("GET", at, "").status == 404 })
	time.Sleep(3 * time.Second) // rounds of retention
	require.Equal(t, 200, s.do("GET", kept, "").status)
	require.Equal(t, "QUEUED", s.message(kept).Jobs[2].Status)
}

// While consumers are deleted and created again under load, the others lose nothing and the new
// ones get nothing from before, through a lost Redis and a killed broker.
func TestDeletionUnderLoad(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with("BROKER_ALLOW_DELETE=true")
		brokers := []*process{w.start()}
		if w.redis != nil {
			brokers = append(brokers, w.start())
		}
		stays := newSink(t, nil)
		s := brokers[0].stage(t, "stays="+stays.URL)
		l := startSteady(s, 3, func(n int) *process { return brokers[n%len(brokers)] })
		var recreated []*sink
		var since []time.Time
		for i := range 6 {
			slow := newSink(t, func(int, received) int { time.Sleep(20 * time.Millisecond); return http.StatusNoContent })
			recreated, since = append(recreated, slow), append(since, time.Now())
			s.on(brokers[i%len(brokers)]).join("k=" + slow.URL)
			l.progress(40)
			if w.redis != nil && i%2 == 1 {
				w.flushall()
			}
			s.on(brokers[(i+1)%len(brokers)]).delete(s.path("/consumer/k"))
		}
		l.finish()
		last := recreated[len(recreated)-1]
		brokers[0].kill()
		if w.redis != nil {
			w.flushall()
		}
		brokers[0] = w.start()
		s = s.on(brokers[0])
		bodies := l.bodies()
		eventually(t, "all messages at the consumer that stays", func() bool { return stays.hasAll(bodies) })
		before := last.count()
		s.awaitRest(stays)
		require.Equal(t, before, last.count(), "nothing is sent to a deleted consumer")

		sent := map[string]time.Time{} // the first try of each message
		for _, a := range l.answers {
			if at, known := sent["m-"+a.key]; !known || a.sent.Before(at) {
				sent["m-"+a.key] = a.sent
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, g := range recreated {
			for body := range g.counts() {
				key := strings.TrimPrefix(body, "m-")
				require.True(t, l.acked[key].After(since[i]), "%s was acknowledged before the consumer was created", body)
				if i+1 < len(since) {
					require.True(t, sent[body].Before(since[i+1]), "%s was sent after the consumer was deleted", body)
				}
			}
		}
	})
}

// A broker whose copy of the catalogue is old accepts nothing for what was deleted meanwhile.
func TestABrokerWithAnOldCopyAcceptsNothingForWhatIsDeleted(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...).with("BROKER_ALLOW_DELETE=true")
	a, b := w.start(), w.start()
	for i := range 3 {
		s := a.stage(t)
		on := s.on(b)
		producer := fmt.Sprint("leaves-", i)
		s.put("/producer/"+producer, "token", "l-token")
		as := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token",
			"l-token"}
		post := func(channel string) reply { return on.do("POST", channel+"/broadcast", "body", as...) }
		gone, again := s.path()+"-gone", s.path()+"-again"
		for _, channel := range []string{gone, again} {
			s.put(channel, "token", "c-token")
		}
		for _, channel := range []string{s.path(), gone, again} {
			require.Equal(t, 201, post(channel).status)
		}
		old := s.do("GET", again+"/messages", "").body

		b.freeze()
		s.delete(gone)
		s.delete(again)
		s.put(again, "token", "c-token")
		answers := make(chan reply, 2)
		go func() { answers <- post(gone) }()
		go func() { answers <- post(again) }()
		time.Sleep(100 * time.Millisecond) // both are sent
		b.thaw()
		got := []int{(<-answers).status, (<-answers).status}
		slices.Sort(got)
		require.Equal(t, []int{201, 404}, got)
		require.Len(t, s.do("GET", again+"/messages", "").json(t)["Result"], 1, "none from before")
		require.NotEqual(t, old, s.do("GET", again+"/messages", "").body)

		b.freeze()
		s.delete("/producer/" + producer)
		go func() { answers <- post(s.path()) }()
		time.Sleep(100 * time.Millisecond)
		b.thaw()
		requireProblem(t, <-answers, 401, "producer_not_found")
	}
}
