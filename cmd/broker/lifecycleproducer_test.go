package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var producerLives = map[string]func(*testing.T, *life){
	"a producer is deleted: schedules": func(t *testing.T, s *life) {
		s.join("k")
		own := s.own()
		s.as(own)
		first := lead
		publish := func() reply {
			return s.do("POST", s.path("/broadcast"), "again", append(tokensOf(own), "X-Broker-Message-ID", "tick",
				"X-Broker-Recurrence", "R/"+in(first)+"/PT1S")...)
		}
		r := publish()
		for ; r.status == 412 && first < 8*lead; r = publish() { // busy until that time was past
			first *= 2
		}
		require.Equal(t, 201, r.status, r.body)
		at := r.header.Get("Location")
		s.delete("/producer/" + own)
		before := s.stored() // on a slow machine the first times came before the deletion
		s.as(own)
		s.meanwhile()
		requireProblem(t, s.do("GET", at, ""), 404, "scheduled_message_not_found")
		requireProblem(t, s.do("DELETE", at, "", tokensOf(own)...), 404, "scheduled_message_not_found")
		eventually(t, "the ID to be free", func() bool {
			r := s.do("POST", s.path("/broadcast"), "mine", append(tokensOf(own), "X-Broker-Message-ID", "tick")...)
			return r.status == 201
		})
		time.Sleep(first + time.Second) // past the first times of the schedule
		require.Equal(t, before+1, s.stored())
		s.awaitQueued("k", before+1)
		require.Zero(t, s.counts().Counts.ScheduledWaiting.Count)
	},
	"a producer is deleted: bulks": func(t *testing.T, s *life) {
		s.join("k")
		own := s.own()
		s.as(own)
		url := file(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		begin := func(contentType, body string) string {
			r := s.do("POST", s.path("/bulk"), body, append(tokensOf(own), "Content-Type", contentType)...)
			require.Equal(t, 202, r.status, r.body)
			return r.header.Get("Location")
		}
		slow := begin("application/json", `{"FileURL":"`+url+`","Format":"ndjson"}`)
		rows := strings.Repeat(`{"Payload":"x"}`+"\n", 20_000)
		paused := begin("application/x-ndjson", rows)
		require.Equal(t, 200, s.do("POST", paused+"/pause", "").status)
		published := s.bulkAt(paused).Published
		s.delete("/producer/" + own)
		s.as(own)
		s.meanwhile()
		for _, at := range []string{slow, paused} {
			b := s.bulkAt(at)
			require.Equal(t, "FAILED", b.State)
			require.Contains(t, b.Reason, "deleted")
			requireProblem(t, s.do("POST", at+"/resume", ""), 409, "bulk_over")
		}
		require.Equal(t, published, s.bulkAt(paused).Published)
	},
	"a producer is deleted: messages and their jobs": func(t *testing.T, s *life) {
		own := s.own()
		s.as(own)
		s.join("k")
		at := s.publishAs(own, "m")
		s.delete("/producer/" + own)
		s.meanwhile()
		job := s.awaitQueued("k", 1)[0].ID
		s.claim("k", job)
		require.Equal(t, 202, s.move("k", job, to("DELIVERED")).status)
		require.Equal(t, own, s.awaitStatus(at, "DELIVERED").ProducedBy)
	},
	"a producer is deleted: replies on their way": func(t *testing.T, s *life) {
		to := s.replyTo(500)
		s.responder()
		at := s.onItsWay(to)
		sender := s.senderTo(to)
		s.delete("/producer/" + s.own())
		s.meanwhile()
		s.quiet(to)
		require.Contains(t, s.awaitAnswer(at, "FAILED").Reason, "producer")
		require.True(t, s.answers(at).Complete)
		eventually(t, "the channel of replies to go", func() bool { return s.do("GET", sender, "").status == 404 })
	},
	"a producer is deleted: responses that wait for a `replyUrl`": func(t *testing.T, s *life) {
		s.as(s.own())
		k := s.responder()
		at := s.publishAs(s.own(), "m")
		eventually(t, "the response", func() bool { return k.count() == 1 })
		s.awaitAnswer(at, "RESPONSE_RECEIVED_FROM_RECEIVER")
		s.delete("/producer/" + s.own())
		s.meanwhile()
		s.awaitAnswer(at, "FAILED")
		s.as(s.own())
		to := s.replyTo(200) // of another producer with the same ID
		s.quiet(to)
		require.Zero(t, to.count())
	},
	"a producer is deleted: status events": func(t *testing.T, s *life) {
		own, to := s.own(), newSink(t, func(int, received) int { return 500 })
		s.put("/producer/"+own, "token", own+"-token", "replyUrl", to.URL, "statusEvents", "all")
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		s.publishAs(own, "m")
		eventually(t, "a batch of events", func() bool { return to.count() > 0 })
		sender, dropped := s.senderTo(to), newSink(t, nil)
		s.put("/channel/~status/consumer/"+s.channel, "token", "x", "callbackUrl", dropped.URL)
		s.delete("/producer/" + own)
		s.meanwhile()
		s.quiet(to)
		require.False(t, mentions(dropped, s.channel), "the batch is dropped")
		eventually(t, "the channel of replies to go", func() bool { return s.do("GET", sender, "").status == 404 })
	},
	"a producer is deleted: token, secrets, settings": func(t *testing.T, s *life) {
		own := s.own()
		s.put("/producer/"+own, "token", own+"-token", "replyUrl", "http://127.0.0.1:1/r", "signingSecret", "generate",
			"publishSecret", "0123456789abcdef0123", "statusEvents", "all")
		s.delete("/producer/" + own)
		s.meanwhile()
		requireProblem(t, s.do("POST", s.path("/broadcast"), "m", tokensOf(own)...), 401, "producer_not_found")
		s.as(own)
		r := s.do("GET", "/producer/"+own, "")
		for _, left := range []string{"127.0.0.1:1", "whsec_", "all", `"Signed":true`} {
			require.NotContains(t, r.body, left)
		}
		s.publishAs(own, "m")
	},
	"a producer is deleted: `Idempotency-Key` and message IDs with `identity=producer`": func(t *testing.T, s *life) {
		s.put(s.path(), "identity", "producer")
		own := s.own()
		s.as(own)
		for range 2 {
			s.publishAs(own, "m", "Idempotency-Key", "key")
			s.publishAs(own, "m", "X-Broker-Message-ID", "id")
			s.delete("/producer/" + own)
			s.as(own)
			s.meanwhile()
		}
		require.Equal(t, 4, s.counts().Counts.Dispatched.Count)
	},
	"a producer changes: `replyUrl`: replies on their way": func(t *testing.T, s *life) {
		for _, status := range []int{410, 500} {
			to := s.replyTo(status)
			s.responder()
			s.onItsWay(to)
			sender := s.senderTo(to)
			if status == 410 {
				eventually(t, "the hold", func() bool { return s.stateAt(sender) == "GONE" })
			}
			next := newSink(t, nil)
			s.put("/producer/"+s.own(), "replyUrl", next.URL)
			require.Equal(t, "ACTIVE", s.stateAt(sender))
			s.meanwhile()
			eventually(t, "the reply at the new URL", func() bool { return next.count() == 1 })
			s.quiet(to)
		}
	},
	"a producer changes: `replyUrl` is removed: replies on their way": func(t *testing.T, s *life) {
		to := s.replyTo(500)
		s.responder()
		at := s.onItsWay(to)
		sender := s.senderTo(to)
		s.put("/producer/"+s.own(), "replyUrl", "")
		s.meanwhile()
		s.quiet(to)
		k := s.decodeConsumer(s.do("GET", sender, ""))
		require.Equal(t, "pull", k.Type)
		require.Empty(t, k.CallbackURL)
		s.awaitAnswer(at, "RESPONSE_RECEIVED_FROM_RECEIVER")
		next := newSink(t, nil)
		s.put("/producer/"+s.own(), "replyUrl", next.URL)
		s.awaitAnswer(at, "RESPONSE_DELIVERED_TO_SENDER")
		require.Equal(t, 1, next.count())
		s.quiet(to)
	},
	"a producer changes: `replyUrl`: status events": func(t *testing.T, s *life) {
		to, next := s.batchOnItsWay(), newSink(t, nil)
		s.put("/producer/"+s.own(), "replyUrl", next.URL)
		s.meanwhile()
		eventually(t, "the batch at the new URL", func() bool { return next.count() == 1 })
		require.Equal(t, to.all()[0].body, next.all()[0].body)
		s.quiet(to)
	},
	"a producer changes: `replyUrl` is removed: status events": func(t *testing.T, s *life) {
		all := newSink(t, nil)
		s.put("/channel/~status/consumer/"+s.channel, "token", "x", "callbackUrl", all.URL)
		to := s.batchOnItsWay()
		s.put("/producer/"+s.own(), "replyUrl", "")
		s.meanwhile()
		s.quiet(to)
		require.False(t, mentions(all, s.channel), "the batch waits")
		s.publishAs(s.own(), "later")
		eventually(t, "the later event on the channel", func() bool { return mentions(all, s.channel) })
		next := newSink(t, nil)
		s.put("/producer/"+s.own(), "replyUrl", next.URL)
		eventually(t, "the batch that waited", func() bool { return next.count() == 1 })
		require.Equal(t, to.all()[0].body, next.all()[0].body)
		s.quiet(to)
	},
	"a producer changes: `replyUrl` is removed: responses": func(t *testing.T, s *life) {
		to := s.replyTo(500)
		s.responder("responseTTL", "6s")
		published := s.onItsWay(to)
		s.put("/producer/"+s.own(), "replyUrl", "")
		s.meanwhile()
		waiting := s.publishAs(s.own(), "never sent")
		s.awaitAnswer(waiting, "RESPONSE_RECEIVED_FROM_RECEIVER")
		for _, at := range []string{published, waiting} {
			v := s.awaitAnswer(at, "FAILED")
			require.Contains(t, v.Reason, "replyUrl")
			require.Empty(t, v.Body)
			require.NotNil(t, v.EndedAt)
		}
		next := newSink(t, nil)
		s.put("/producer/"+s.own(), "replyUrl", next.URL)
		s.quiet(next)
	},
	"a producer changes: `replyUrl` is set: responses that wait": func(t *testing.T, s *life) {
		s.as(s.own())
		s.responder()
		var all []string
		for i := range 5 {
			all = append(all, s.publishAs(s.own(), fmt.Sprint(i)))
		}
		for _, at := range all {
			s.awaitAnswer(at, "RESPONSE_RECEIVED_FROM_RECEIVER")
		}
		to := newSink(t, nil)
		s.put("/producer/"+s.own(), "replyUrl", to.URL)
		s.meanwhile()
		begun := time.Now()
		for _, at := range all {
			s.awaitAnswer(at, "RESPONSE_DELIVERED_TO_SENDER")
		}
		require.Less(t, time.Since(begun), 25*time.Second, "it was woken")
		replied := map[string]bool{} // a kill may repeat what it interrupts
		for _, r := range to.all() {
			replied[r.header.Get("X-Broker-In-Reply-To")] = true
		}
		require.Len(t, replied, 5)
	},
	"a producer changes: `signingSecret`: replies on their way": func(t *testing.T, s *life) {
		var good atomic.Bool
		to := newSink(t, func(int, received) int {
			if good.Load() {
				return 200
			}
			return 500
		})
		s.put("/producer/"+s.own(), "token", s.own()+"-token", "replyUrl", to.URL, "signingSecret", "generate")
		s.responder()
		at := s.onItsWay(to)
		require.NotEmpty(t, to.all()[0].header.Get("webhook-signature"))
		s.put("/producer/"+s.own(), "signingSecret", "")
		s.meanwhile()
		before := to.count()
		good.Store(true)
		s.awaitAnswer(at, "RESPONSE_DELIVERED_TO_SENDER")
		got := to.all()
		require.Greater(t, len(got), before)
		require.Empty(t, got[len(got)-1].header.Get("webhook-signature"))
	},
	"a producer changes: `statusEvents`: status events": func(t *testing.T, s *life) {
		var good atomic.Bool
		to := newSink(t, func(int, received) int {
			if good.Load() {
				return 200
			}
			return 500
		})
		own := s.own()
		s.put("/producer/"+own, "token", own+"-token", "replyUrl", to.URL, "statusEvents", "delivered")
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		s.publishAs(own, "before")
		eventually(t, "a batch of events", func() bool { return to.count() > 0 })
		good.Store(true)
		s.put("/producer/"+own, "statusEvents", "off")
		s.meanwhile()
		s.publishAs(own, "after")
		eventually(t, "the batch", func() bool { return to.count() > 1 })
		eventually(t, "both messages", func() bool { return k.count() == 2 })
		s.quiet(to)
		require.Equal(t, 1, strings.Count(to.all()[1].body, `"DELIVERED"`))
	},
}
