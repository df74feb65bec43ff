package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// bodies are the payloads of all queued jobs of a consumer, sorted.
func (s *stage) bodies(consumer string, n int) (all []string) {
	s.t.Helper()
	for _, j := range s.awaitQueued(consumer, n) {
		all = append(all, j.Message.Payload)
	}
	slices.Sort(all)
	return all
}

// jobOf returns the job of a consumer as its message shows it, nil if there is none.
func (s *stage) jobOf(location, consumer string) *apitype.Job {
	s.t.Helper()
	for _, j := range s.message(location).Jobs {
		if j.ConsumerID == consumer {
			return &j
		}
	}
	return nil
}

// Whom a message reaches is decided once, by its addresses and by the filters of that moment.
func TestAMessageReachesThoseThatItIsForOnly(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RATIONAL_DELAY=500ms", "BROKER_ALLOW_DELETE=true")
		p := w.start()
		s := p.stage(t, "all", "a", "selective")
		filter := func(text string) reply {
			return s.put(s.path("/consumer/selective"), "filter", text)
		}
		filter("payload.n >= 2 && headers['x-kind'] == 'k' || contentType == 'text/plain' && priority > 5 || producer == " +
			"'nobody'")
		carried := []string{"X-Broker-Metadata-Headers", "X-Kind", "X-Kind", "k"}
		left := s.publish(`{"n":1}`, carried...)
		s.publish(`{"n":2}`, carried...)
		s.publish(`{"n":3}`)
		s.publish(`no json`, "Content-Type", "text/plain", "X-Broker-Message-Priority", "6")
		toA := s.publish("for a", "X-Broker-Consumers", "a")
		both := s.publish(`{"n":9}`, append(carried, "X-Broker-Consumers", "selective , a")...)
		require.Equal(t, []string{`no json`, `{"n":2}`, `{"n":9}`}, s.bodies("selective", 3))
		s.awaitQueued("a", 6)
		s.awaitQueued("all", 4)
		require.Nil(t, s.jobOf(toA, "selective"), "a filter is not asked about a message for others")
		require.Nil(t, s.jobOf(both, "all"))
		j := s.jobOf(left, "selective")
		require.Equal(t, "FILTERED", j.Status)
		require.Contains(t, s.do("GET", j.JobURL, "", "X-Broker-Admin-Token", adminToken).body, `"FILTERED"`)
		requireProblem(t, s.do("POST", j.RetriggerURL, "", "X-Broker-Admin-Token", adminToken), 409, "job_filtered")

		// What is refused stores nothing.
		for _, to := range []string{"a,none", "", "a/b", "all," + s.channel} {
			r := s.post("refused", "X-Broker-Consumers", to, "X-Broker-Message-ID", "refused")
			require.Equal(t, 400, r.status, "%q: %s", to, r.body)
			require.Equal(t, 404, s.do("GET", s.path("/message/refused"), "").status)
		}
		require.Contains(t, s.post("refused", "X-Broker-Consumers", "a,none").body, "none")
		refused := s.do("PUT", s.path("/consumer/selective"), url.Values{"filter": {"payload.n >"}}.Encode(),
			"Content-Type", "application/x-www-form-urlencoded", "X-Broker-Admin-Token", adminToken)
		requireProblem(t, refused, 400, "invalid_policy")
		require.Contains(t, refused.body, "column 12")

		// The other ways in.
		results := s.lines(`{"Payload":"{\"n\":5}","Consumers":["selective"]}`,
			`{"Payload":"{\"n\":5}","Headers":{"X-Kind":"k"},"Consumers":["selective"]}`,
			`{"Payload":"x","Consumers":["none"]}`, `{"Payload":"x","Consumers":[]}`, `{"Payload":"x","Consumers":"a"}`)
		for i, status := range []int{201, 201, 400, 400, 400} {
			require.Equal(t, status, results[i].Status, i)
		}
		filter("headers['ce-type'] == 'sold'")
		event := []string{"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source",
			"/s", "ce-type"}
		s.publish(`1`, append(event, "sold")...)
		s.publish(`{"specversion":"1.0","id":"2","source":"/s","type":"sold","data":2}`, "Content-Type",
			"application/cloudevents+json")
		s.publish(`{"specversion":"1.0","id":"3","source":"/s","type":"bought","data":2}`, "Content-Type",
			"application/cloudevents+json")
		s.awaitQueued("selective", 6)
		s.put(s.path("/consumer/gone"), "token", "gone-token", "type", "pull")
		at := time.Now().Add(1500 * time.Millisecond).UTC().Format(time.RFC3339Nano)
		s.later(at, "later", "X-Broker-Consumers", "a,gone")
		s.later(at, "to nobody", "X-Broker-Consumers", "gone")
		s.delete(s.path("/consumer/gone"))
		s.awaitQueued("a", 10)

		// A changed filter counts for what comes later, also after a crash and the loss of Redis.
		filter("false")
		s.publish("none of them")
		p.kill()
		if w.redis != nil {
			w.flushall()
		}
		s = s.on(w.start())
		require.Len(t, s.bodies("selective", 6), 6)
		s.awaitWalk()
		require.Len(t, s.bodies("selective", 6), 6)
		filter("")
		s.publish("everything")
		s.awaitQueued("selective", 7)
		want := []apitype.Books{
			{ConsumerID: "all", Accepted: 9, Queued: 9, Balanced: true},
			{ConsumerID: "a", Accepted: 12, Queued: 12, Balanced: true},
			{ConsumerID: "selective", Accepted: 12, Queued: 7, Filtered: 5, Balanced: true},
		}
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(s.books("").Result))
	})
}

// After the 2xx of a PUT no broker filters a message by the filter of before.
func TestAChangedFilterCountsOnEveryBroker(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	brokers := []*process{w.start(), w.start(), w.start()}
	s := brokers[0].stage(t, "k")
	wanted := map[string]bool{}
	for n := 1; n <= 20; n++ {
		by := s.on(brokers[n%3])
		by.put(s.path("/consumer/k"), "filter", "priority == "+strconv.Itoa(n))
		var wg sync.WaitGroup
		for i, p := range brokers {
			for _, priority := range []int{n, n - 1} {
				body := fmt.Sprintf("%d-%d-%d", n, i, priority)
				wanted[body] = priority == n
				wg.Go(func() {
					r, err := p.ask("POST", s.path("/broadcast"), body, append([]string{"X-Broker-Message-Priority",
						strconv.Itoa(priority), "X-Broker-Message-ID", body}, producerTokens...)...)
					if err != nil || r.status != 201 {
						t.Errorf("%s: %v %s", body, err, r.body)
					}
				})
			}
		}
		wg.Wait()
	}
	var want []string
	for body, is := range wanted {
		if is {
			want = append(want, body)
		}
	}
	slices.Sort(want)
	require.Equal(t, want, s.bodies("k", len(want)))
}
