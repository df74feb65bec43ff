package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

var channelLives = map[string]func(*testing.T, *life){
	"a channel is deleted: schedules": func(t *testing.T, s *life) {
		at := s.later(in(time.Hour), "later", "X-Broker-Message-ID", "later")
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.meanwhile()
		requireProblem(t, s.do("GET", at, ""), 404, "scheduled_message_not_found")
		s.later(in(time.Hour), "mine", "X-Broker-Message-ID", "later")
		require.Equal(t, 1, s.counts().Counts.ScheduledWaiting.Count)
	},
	"a channel is deleted: bulks": func(t *testing.T, s *life) {
		var fetched, left atomic.Int64
		url := file(t, func(_ http.ResponseWriter, r *http.Request) { fetched.Add(1); <-r.Context().Done(); left.Add(1) })
		at := s.bulk("application/json", `{"FileURL":"`+url+`","Format":"ndjson"}`)
		eventually(t, "the fetch", func() bool { return fetched.Load() == 1 })
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.meanwhile()
		require.Contains(t, s.do("GET", s.path("/bulks"), "").body, `"Result":[]`)
		require.Equal(t, 404, s.do("GET", at, "").status)
		eventually(t, "the broker to let it go", func() bool { return left.Load() == 1 })
		time.Sleep(5 * time.Second) // longer than the first waits until a file is fetched again
		require.EqualValues(t, 1, fetched.Load())
	},
	"a channel is deleted: messages, jobs, responses": func(t *testing.T, s *life) {
		s.replyTo(500)
		s.responder()
		at := s.publishAs(s.own(), "m", "X-Broker-Message-ID", "m")
		s.awaitAnswer(at, "RESPONSE_RECEIVED_FROM_RECEIVER")
		s.delete(s.path("/consumer/k"))
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.join("k")
		s.meanwhile()
		require.Equal(t, 404, s.do("GET", at, "").status)
		require.Equal(t, 404, s.do("GET", at+"/responses", "").status)
		require.Empty(t, s.queued("k", ""))
		s.publishAs(s.own(), "m", "X-Broker-Message-ID", "m")
		s.awaitQueued("k", 1)
	},
	"a channel is deleted: the alarm of its silence": func(t *testing.T, s *life) {
		await, detach := s.watched()
		defer detach()
		s.put(s.path(), "expectEvery", "1s")
		await("channel.silent")
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.meanwhile()
		over := await("channel.silent", "channel.silent.over")[1]
		require.Equal(t, "the channel was deleted", over.Reason)
		require.Equal(t, "0s", s.do("GET", s.path(), "").json(t)["ExpectEvery"])
	},
	"a channel is deleted: access keys of SQS clients": func(t *testing.T, s *life) {
		key := s.do("POST", s.path("/sqs-key"), "").json(t)["AccessKeyId"].(string)
		require.Contains(t, s.signedBy(key), "SignatureDoesNotMatch", "it is known")
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.meanwhile()
		require.Contains(t, s.signedBy(key), "InvalidClientTokenId")
	},
	"a channel is deleted: scopes of API tokens that name it": func(t *testing.T, s *life) {
		s.join("k")
		of, narrow := s.scoped(`"channel:`+s.channel+`"`), s.scoped(`"consumer:`+s.channel+`/k","dlq"`)
		require.Equal(t, 200, s.claimBy(of).status)
		s.delete(s.path("/consumer/k"))
		s.delete(s.path())
		s.put(s.path(), "token", "c-token")
		s.join("k")
		s.meanwhile()
		require.Equal(t, 403, s.claimBy(of).status)
		require.Equal(t, 403, s.claimBy(narrow).status)
	},
	"a channel is deleted: dead letters that a consumer forwards to it": func(t *testing.T, s *life) {
		morgue := s.channel + "-dead"
		s.put("/channel/"+morgue, "token", "x")
		k := newSink(t, func(int, received) int { return 400 })
		s.join("k=" + k.URL)
		s.put(s.path("/consumer/k"), "dlq", "forward:"+morgue, "retryOn", "5xx")
		s.delete("/channel/" + morgue)
		s.meanwhile()
		at := s.publish("m")
		s.awaitStatus(at, "DEAD")
		require.Len(t, s.dead("k", 10), 1)
		s.put("/channel/"+morgue, "token", "x")
		eventually(t, "the dead letter in the new channel", func() bool {
			return strings.Contains(s.do("GET", "/channel/"+morgue+"/messages", "").body, "/message/")
		})
	},
}

var consumerLives = map[string]func(*testing.T, *life){
	"a consumer is deleted: open jobs": func(t *testing.T, s *life) {
		s.join("k")
		at := s.publish("m")
		s.awaitQueued("k", 1)
		s.delete(s.path("/consumer/k"))
		j, free := newHeldSink(t, 204)
		s.join("j=" + j.URL)
		s.put(s.path("/consumer/j"), "timeout", "2m")
		inFlight := s.publish("n")
		eventually(t, "the request", func() bool { return j.count() == 1 })
		s.delete(s.path("/consumer/j"))
		free()
		s.awaitStatus(inFlight, "DELIVERED")
		s.meanwhile()
		require.Equal(t, "consumer_deleted", s.awaitStatus(at, "DEAD").Jobs[0].ReasonCode)
		s.awaitStatus(inFlight, "DELIVERED")
		require.Equal(t, 1, j.count())
	},
	"a consumer is deleted: leases of workers": func(t *testing.T, s *life) {
		s.join("k")
		job := s.newJob("k")
		s.claim("k", job)
		s.delete(s.path("/consumer/k"))
		s.meanwhile()
		requireProblem(t, s.move("k", job, to("DELIVERED")), 401, "consumer_not_found")
		s.join("k") // another consumer, with the same tokens
		require.Contains(t, []int{401, 404, 409}, s.move("k", job, to("DELIVERED")).status)
	},
	"a consumer is deleted: scopes of API tokens that name it": func(t *testing.T, s *life) {
		s.join("k")
		token := s.scoped(`"consumer:` + s.channel + `/k"`)
		require.Equal(t, 200, s.claimBy(token).status)
		s.delete(s.path("/consumer/k"))
		s.join("k")
		s.meanwhile()
		require.Equal(t, 403, s.claimBy(token).status)
	},
	"a consumer is deleted: replays": func(t *testing.T, s *life) {
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		s.delivered(k, 10)
		s.replay("k", everSince+`,"Rate":"1/1s"`)
		s.delete(s.path("/consumer/k"))
		s.meanwhile()
		s.quiet(k)
		s.join("k=" + k.URL)
		s.quiet(k)
		require.Less(t, k.count(), 20)
		require.Contains(t, s.do("GET", s.path("/consumer/k/replays"), "", consumerTokens("k")...).body, `"Result":[]`)
	},
	"a consumer is deleted: results that are awaited": func(t *testing.T, s *life) {
		k := newSink(t, func(int, received) int { return 202 })
		s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", k.URL, "responses", "store", "async", "true",
			"resultUrl", k.URL+"/result/{messageID}")
		answer := make(chan reply)
		go func() {
			r, _ := s.ask("POST", s.path("/request"), "m", append(append([]string{}, producerTokens...), "Prefer", "wait=50")...)
			answer <- r
		}()
		eventually(t, "a poll", func() bool { return k.count() > 1 })
		begun := time.Now()
		s.delete(s.path("/consumer/k"))
		gone := <-answer
		requireProblem(t, gone, 502, "response_failed")
		require.Contains(t, gone.body, "no response: k, deleted")
		require.NotEmpty(t, gone.header.Get("Location"))
		require.Less(t, time.Since(begun), 30*time.Second, "the client waits no longer")
		s.meanwhile()
		s.quiet(k)
	},
	"a consumer is deleted: responses that it gave": func(t *testing.T, s *life) {
		s.as(s.own())
		s.responder()
		at := s.publishAs(s.own(), "m")
		s.awaitAnswer(at, "RESPONSE_RECEIVED_FROM_RECEIVER")
		s.delete(s.path("/consumer/k"))
		s.meanwhile()
		to := s.replyTo(200)
		eventually(t, "the reply", func() bool { return to.count() == 1 })
	},
	"a consumer is deleted: state, failures, pace, dead letters, books": func(t *testing.T, s *life) {
		k := newSink(t, func(int, received) int { return 500 })
		s.join("k=" + k.URL)
		s.put(s.path("/consumer/k"), "tombstoneAfter", "1", "adaptive", "true", "maxRetries", "1")
		s.awaitStatus(s.publish("m"), "DEAD")
		s.awaitState("k", "DEAD")
		s.delete(s.path("/consumer/k"))
		s.meanwhile()
		ok := newSink(t, nil)
		s.join("k=" + ok.URL)
		v := s.counted("k")
		require.Equal(t, "ACTIVE NORMAL", v.State+" "+v.Rate)
		require.Zero(t, *v.DeadLetters)
		require.Zero(t, *v.Queued)
		s.awaitStatus(s.publish("n"), "DELIVERED")
		require.Equal(t, 1, ok.count())
	},
	"a consumer is deleted: history": func(t *testing.T, s *life) {
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		s.publish("m")
		of, own := "?channel="+s.channel, "?channel="+s.channel+"&consumer=k"
		awaitSlots(t, "the history", func() bool { return s.slots(own).Delivered == 1 })
		s.delete(s.path("/consumer/k"))
		require.Equal(t, 404, s.do("GET", "/history"+own, "").status)
		s.meanwhile()
		s.join("k=" + k.URL)
		require.Zero(t, s.slots(own).Accepted)
		require.EqualValues(t, 1, s.slots(of).Delivered)
	},
	"a consumer is deleted: alarms that are open": func(t *testing.T, s *life) {
		await, detach := s.watched()
		defer detach()
		s.join("k")
		s.put(s.path("/consumer/k"), "maxAge", "1s")
		s.publish("m")
		await("consumer.late")
		s.delete(s.path("/consumer/k"))
		s.meanwhile()
		over := await("consumer.late", "consumer.late.over")[1]
		require.Equal(t, "the consumer was deleted", over.Reason)
	},
	"a consumer changes: `callbackUrl`: `GONE` and `DEAD`": func(t *testing.T, s *life) {
		for state, status := range map[string]int{"GONE": 410, "DEAD": 500} {
			k := newSink(t, func(int, received) int { return status })
			s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", k.URL, "tombstoneAfter", "1")
			at := s.publish(state)
			s.awaitState("k", state)
			ok := newSink(t, nil)
			s.put(s.path("/consumer/k"), "callbackUrl", ok.URL)
			s.meanwhile()
			require.Equal(t, "ACTIVE", s.consumer("k").State)
			s.awaitStatus(at, "DELIVERED")
			s.change("k", "pause")
			s.put(s.path("/consumer/k"), "callbackUrl", k.URL)
			require.Equal(t, "PAUSED", s.consumer("k").State)
			s.put(s.path("/consumer/k"), "callbackUrl", ok.URL)
			s.change("k", "resume")
		}
		require.Contains(t, s.do("GET", "/channel/~alerts/messages?size=100", "").body, "message")
	},
	"a consumer changes: `callbackUrl`: failures of the tombstone, pace": func(t *testing.T, s *life) {
		var failures atomic.Int64 // to come
		failures.Store(1 << 40)
		k := newSink(t, func(int, received) int {
			if failures.Add(-1) >= 0 {
				return 500
			}
			return 204
		})
		s.join("k=" + k.URL)
		s.put(s.path("/consumer/k"), "tombstoneAfter", "1000", "backoff", "constant:300ms")
		for i := range 8 {
			s.publish(fmt.Sprint(i))
		}
		eventually(t, "many failures", func() bool { return k.count() >= 10 })
		s.put(s.path("/consumer/k"), "adaptive", "true")
		eventually(t, "the pace to slow down", func() bool { return s.consumer("k").Rate != "NORMAL" })
		s.change("k", "pause")
		s.put(s.path("/consumer/k"), "callbackUrl", k.URL+"/new", "tombstoneAfter", "3")
		s.meanwhile()
		// brokers read paces several times in a period
		eventually(t, "the pace to begin anew", func() bool { return s.consumer("k").Rate == "NORMAL" })
		eventually(t, "what is under way", func() bool { return k.open.Load() == 0 })
		failures.Store(1)
		before := k.count()
		s.change("k", "resume")
		eventually(t, "all jobs at the new URL", func() bool { return k.count() >= before+9 })
		require.Equal(t, "ACTIVE", s.consumer("k").State, "the failures of the former one do not count")
	},
	"a consumer changes: `callbackUrl`: claimed jobs whose request has not begun": func(t *testing.T, s *life) {
		k, free := newHeldSink(t, 410)
		s.join("k=" + k.URL)
		s.put(s.path("/consumer/k"), "concurrency", "1", "timeout", "2m") // a slow machine changes the URL in time
		for i := range 5 {
			s.publish(fmt.Sprint(i))
		}
		eventually(t, "the first request", func() bool { return k.count() == 1 })
		ok := newSink(t, nil)
		s.put(s.path("/consumer/k"), "callbackUrl", ok.URL)
		s.meanwhile()
		free()
		eventually(t, "all jobs at the new URL", func() bool { return ok.distinct() == 5 })
		require.Equal(t, 1, k.count())
		require.Equal(t, "ACTIVE", s.consumer("k").State, "the 410 was of the former URL")
	},
	"a consumer changes: `type`: waiting jobs": func(t *testing.T, s *life) {
		k := newSink(t, func(int, received) int { return 410 })
		s.join("k=" + k.URL)
		s.publish("m")
		s.awaitState("k", "GONE")
		s.put(s.path("/consumer/k"), "type", "pull")
		s.meanwhile()
		require.Equal(t, "ACTIVE", s.consumer("k").State)
		s.awaitQueued("k", 1)
		ok := newSink(t, nil)
		s.put(s.path("/consumer/k"), "type", "push", "callbackUrl", ok.URL)
		eventually(t, "the job", func() bool { return ok.count() == 1 })
		s.quiet(k)
	},
	"a consumer changes: `authorization`: the access token": func(t *testing.T, s *life) {
		endpoint := func(token string) string {
			e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id, _, _ := r.BasicAuth()
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"access_token":"%s-%s","token_type":"Bearer","expires_in":3600}`, token, id)
			}))
			t.Cleanup(e.Close)
			return e.URL
		}
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		one, two := endpoint("one"), endpoint("two")
		for i, use := range [][2]string{{one + " a s3cret", "one-a"}, {one + " b s3cret", "one-b"},
			{two + " b s3cret", "two-b"}} {
			s.put(s.path("/consumer/k"), "authorization", "oauth2 "+use[0])
			if i == 1 {
				s.meanwhile()
			}
			s.awaitStatus(s.publish(fmt.Sprint(i)), "DELIVERED")
			got := k.all()
			require.Equal(t, "Bearer "+use[1], got[len(got)-1].header.Get("Authorization"))
		}
		s.put(s.path("/consumer/k"), "authorization", "")
		s.awaitStatus(s.publish("none"), "DELIVERED")
		require.Empty(t, k.all()[k.count()-1].header.Get("Authorization"))
	},
	"a consumer changes: `responses=off`: results that are awaited": func(t *testing.T, s *life) {
		k := newSink(t, func(int, received) int { return 202 })
		s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", k.URL, "responses", "store", "async", "true",
			"resultUrl", k.URL+"/result/{messageID}")
		at := s.publish("m")
		eventually(t, "a poll", func() bool { return k.count() > 1 })
		s.put(s.path("/consumer/k"), "responses", "off")
		s.meanwhile()
		require.True(t, s.answers(at).Complete)
		s.put(s.path("/consumer/j"), "token", "j-token", "type", "pull")
		eventually(t, "the end of the polls", func() bool {
			s.put(s.path("/consumer/k"), "responses", "store")
			v := s.answers(at).Result
			s.put(s.path("/consumer/k"), "responses", "off")
			return len(v) == 1 && v[0].State == "FAILED"
		})
		s.quiet(k)
	},
}

var otherLives = map[string]func(*testing.T, *life){
	"a schedule is changed: its next message": func(t *testing.T, s *life) {
		s.join("k")
		at := s.publishAs("p", "former", "X-Broker-Message-ID", "moved", "X-Broker-Delay", "1h")
		require.Equal(t, 200, s.reschedule(at, "present", "X-Broker-Delay", "2s").status)
		s.meanwhile()
		require.Equal(t, "present", s.awaitQueued("k", 1)[0].Message.Payload)
		time.Sleep(1500 * time.Millisecond)
		require.Len(t, s.awaitQueued("k", 1), 1)
	},
	"a schedule is deleted: its next messages, its message ID": func(t *testing.T, s *life) {
		s.join("k")
		at := s.publishAs("p", "tick", "X-Broker-Message-ID", "tick", "X-Broker-Recurrence", "R/"+in(8*time.Second)+"/PT1S")
		eventually(t, "a message of the schedule", func() bool { return len(s.queued("k", "limit=100")) > 0 })
		s.delete(at)
		sent := s.stored()
		s.meanwhile()
		requireProblem(t, s.do("GET", at, ""), 404, "scheduled_message_not_found")
		s.publish("mine", "X-Broker-Message-ID", "tick")
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, sent+1, s.stored())
		s.awaitQueued("k", sent+1)
	},
	"a bulk is cancelled: its next rows, its body": func(t *testing.T, s *life) {
		at := s.bulk("application/json", `{"FileURL":"`+file(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 1000 {
				_, _ = w.Write([]byte(`{"Payload":"x"}` + "\n"))
			}
		})+`","Format":"ndjson","Rate":"1/1s"}`)
		eventually(t, "a row", func() bool { return s.bulkAt(at).Published > 0 })
		require.Equal(t, 200, s.do("POST", at+"/cancel", "").status)
		b := s.bulkAt(at)
		require.Equal(t, "CANCELLED", b.State)
		s.meanwhile()
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, b.Published, s.bulkAt(at).Published)
		require.EqualValues(t, b.Published, s.counts().Counts.Dispatched.Count)
	},
	"a replay is cancelled: its jobs": func(t *testing.T, s *life) {
		k := newSink(t, nil)
		s.join("k=" + k.URL)
		s.delivered(k, 10)
		at := s.replay("k", everSince+`,"Rate":"1/1s"`)
		require.Equal(t, 200, s.do("POST", at+"/cancel", "", consumerTokens("k")...).status)
		s.meanwhile()
		s.quiet(k)
		require.Less(t, k.count(), 20)
		require.Equal(t, "CANCELLED", s.replayAt(at).State)
		require.Zero(t, *s.counted("k").Queued)
	},
	"a consumer of `~alerts` or `~status` is deleted: its jobs": func(t *testing.T, s *life) {
		channels := []string{"/channel/~alerts", "/channel/~status"}
		at := func(ch string) string { return ch + "/consumer/" + s.channel }
		sinks := map[string]*sink{}
		for _, ch := range channels {
			sinks[ch] = newSink(t, func(int, received) int { return 500 })
			s.put(at(ch), "token", "x", "callbackUrl", sinks[ch].URL)
		}
		own := s.own()
		s.put("/producer/"+own, "token", own+"-token", "statusEvents", "all")
		s.join("j=" + newSink(t, nil).URL)
		s.join("k=" + newSink(t, func(int, received) int { return 410 }).URL)
		s.publishAs(own, "m")
		for _, ch := range channels {
			eventually(t, "an event of this stage", func() bool { return mentions(sinks[ch], s.channel) })
			s.delete(at(ch))
		}
		s.meanwhile()
		for _, ch := range channels {
			requireProblem(t, s.do("GET", at(ch), ""), 404, "consumer_not_found")
			requireProblem(t, s.do("DELETE", ch, ""), 400, "reserved_name")
			require.Equal(t, 200, s.do("GET", ch, "").status)
			s.quiet(sinks[ch])
			next := newSink(t, nil)
			s.put(at(ch), "token", "x", "callbackUrl", next.URL)
			time.Sleep(1500 * time.Millisecond)
			require.False(t, mentions(next, s.channel), "it has none of the former one's")
			s.delete(at(ch))
		}
	},
}

// mentions reports whether a sink has got a body with a text.
func mentions(k *sink, text string) bool {
	for _, r := range k.all() {
		if strings.Contains(r.body, text) {
			return true
		}
	}
	return false
}

// watched gets the alerts about this stage until detach is called.
func (s *life) watched() (await func(want ...string) []apitype.Alert, detach func()) {
	ops := newSink(s.t, nil)
	s.process.attach(s.channel, ops)
	return alarms(s.t.(*testing.T), s.stage, ops), func() { s.delete("/channel/~alerts/consumer/" + s.channel) }
}

// scoped makes an API token with scopes, as JSON.
func (s *life) scoped(scopes string) string {
	s.t.Helper()
	r := s.do("POST", "/tokens", `{"Name":"t","Scopes":[`+scopes+`]}`, "Content-Type", "application/json")
	require.Equal(s.t, 201, r.status, r.body)
	return r.json(s.t)["Token"].(string)
}

// claimBy claims of the consumer k with an API token.
func (s *life) claimBy(token string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/consumer/k/claim"), "", "Authorization", "Bearer "+token)
}
