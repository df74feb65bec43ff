package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A tired consumer asks for an hour of rest: each request to "/old" is 503.
type tired struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string]int // requests by path and body
	rest bool
}

func newTired(t *testing.T) *tired {
	k := &tired{got: map[string]int{}, rest: true}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := readText(r.Body, -1)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.got[r.URL.Path+" "+body]++
		if k.rest && r.URL.Path == "/old" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(204)
	}))
	t.Cleanup(k.Close)
	return k
}

func (k *tired) count(request string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got[request]
}

func (k *tired) rested() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rest = false
}

// requireHeld waits until a resource shows a hold of about an hour, and returns it.
func (s *stage) requireHeld(path string) (until string) {
	s.t.Helper()
	eventually(s.t, "the hold of "+path, func() bool {
		until, _ = s.do("GET", path, "").json(s.t)["HeldUntil"].(string)
		return until != ""
	})
	end, err := time.Parse(time.RFC3339, until)
	require.NoError(s.t, err)
	require.WithinDuration(s.t, time.Now().Add(time.Hour), end, 10*time.Minute)
	by := s.do("GET", path, "").json(s.t)["HeldBy"]
	if strings.Contains(path, "/consumer/") {
		require.Equal(s.t, "retry_after", by)
	} else {
		require.Contains(s.t, by, "503")
	}
	return until
}

func (s *stage) requireNotHeld(path string) {
	s.t.Helper()
	view := s.do("GET", path, "").json(s.t)
	require.NotContains(s.t, view, "HeldUntil")
	require.NotContains(s.t, view, "HeldBy")
}

// Each of these ends a hold by Retry-After, also of the message that got the answer, and from whatever
// broker.
func TestAHoldEndsWithItsReason(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RETRY_BACKOFF=50ms", "BROKER_DELIVERY_TIMEOUT=5s")
		p := w.start()
		other := p
		if w.redis != nil {
			other = w.start()
		}
		accepted := func(t *testing.T, r reply) { require.Contains(t, []int{200, 202}, r.status, r.body) }
		for name, lever := range map[string]func(t *testing.T, s *stage, k *tired, first string){
			"a new callback URL": func(t *testing.T, s *stage, k *tired, _ string) {
				s.put(s.path("/consumer/k"), "callbackUrl", k.URL+"/new")
			},
			"other credentials": func(t *testing.T, s *stage, k *tired, _ string) {
				k.rested()
				s.put(s.path("/consumer/k"), "authorization", "bearer other")
			},
			"pause and resume": func(t *testing.T, s *stage, k *tired, _ string) {
				k.rested()
				accepted(t, s.do("POST", s.path("/consumer/k/pause"), ""))
				accepted(t, s.do("POST", s.path("/consumer/k/resume"), ""))
			},
			"resume alone": func(t *testing.T, s *stage, k *tired, _ string) {
				k.rested()
				accepted(t, s.do("POST", s.path("/consumer/k/resume"), ""))
			},
			"revive": func(t *testing.T, s *stage, k *tired, _ string) {
				k.rested()
				accepted(t, s.do("POST", s.path("/consumer/k/revive"), ""))
			},
			"re-trigger of a message": func(t *testing.T, s *stage, k *tired, first string) {
				k.rested()
				accepted(t, s.do("POST", first+"/re-trigger", "", "X-Broker-Admin-Token", adminToken))
			},
			"re-trigger of a job": func(t *testing.T, s *stage, k *tired, first string) {
				k.rested()
				accepted(t, s.do("POST", s.message(first).Jobs[0].RetriggerURL, "", "X-Broker-Admin-Token", adminToken))
			},
			"redrive": func(t *testing.T, s *stage, k *tired, _ string) {
				k.rested()
				accepted(t, s.do("POST", s.path("/consumer/k/dlq"), url.Values{"requeue": {"k-token"}}.Encode(), "Content-Type",
					"application/x-www-form-urlencoded"))
			},
		} {
			t.Run(name, func(t *testing.T) {
				k := newTired(t)
				s := p.stage(t, "k="+k.URL+"/old")
				path := s.path("/consumer/k")
				s.requireNotHeld(path)
				first := s.publish("one")
				s.requireHeld(path)
				s.on(other).requireHeld(path)
				second := s.publish("two")
				gauge := fmt.Sprintf(`penstock_consumer_held_seconds{channel=%q,consumer="k"}`, s.channel)
				for _, b := range []*process{p, other} {
					eventually(t, "the gauge", func() bool {
						rest, err := b.metricOf("/metrics/consumers", gauge)
						return err == nil && rest > 3000 && rest <= 3600
					})
				}
				require.Zero(t, k.count("/old two"))
				for _, at := range []string{first, second} { // why they wait
					jobs := s.on(other).message(at).Jobs
					require.NotNil(t, jobs[0].HeldUntil, at)
					require.NotEmpty(t, s.on(other).do("GET", jobs[0].JobURL, "").json(t)["HeldUntil"], at)
				}
				lever(t, s.on(other), k, first)
				s.on(other).requireNotHeld(path)
				s.awaitStatus(second, "DELIVERED")
				s.awaitStatus(first, "DELIVERED")
				s.requireNotHeld(path)
				require.Nil(t, s.message(first).Jobs[0].HeldUntil)
			})
		}
	})
}

// The fail-safe of a broker may call re-trigger: it is no person.
func TestTheFailSafeEndsNoHold(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_RETRY_BACKOFF=50ms")
	k := newTired(t)
	s := p.stage(t, "k="+k.URL+"/old")
	first := s.publish("one")
	s.requireHeld(s.path("/consumer/k"))
	require.Equal(t, 202, s.do("POST", first+"/re-trigger", "", "X-Broker-Admin-Token", adminToken, "User-Agent",
		"Penstock-fail-safe").status)
	s.requireHeld(s.path("/consumer/k"))
}

// A hold is what the consumer asked for: neither a restart nor a lost Redis forgets it.
func TestFaultAHoldSurvivesARestartAndALostRedis(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_RETRY_BACKOFF=50ms", "BROKER_RATIONAL_DELAY=500ms")
		p := w.start()
		k := newTired(t)
		s := p.stage(t, "k="+k.URL+"/old")
		path := s.path("/consumer/k")
		first := s.publish("one")
		until := s.requireHeld(path)
		require.Equal(t, 0, p.stop())
		p = w.start()
		s = s.on(p)
		require.Equal(t, until, s.requireHeld(path))
		if w.redis != nil {
			require.NoError(t, w.openRedis().FlushAll(t.Context()).Err())
		}
		second := s.publish("two")
		beside := p.stage(t, "other="+k.URL+"/new") // what is published now is sent now
		s.on(p).awaitStatus(beside.publish("beside"), "DELIVERED")
		require.Equal(t, until, s.requireHeld(path))
		require.Equal(t, 1, k.count("/old one"))
		require.Zero(t, k.count("/old two"))
		k.rested()
		require.Equal(t, 200, s.do("POST", s.path("/consumer/k/resume"), "").status)
		s.awaitStatus(second, "DELIVERED")
		s.awaitStatus(first, "DELIVERED")
	})
}

// A hold ends by itself, at its time.
func TestAHoldThatIsOverIsNotShown(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_RETRY_BACKOFF=50ms", "BROKER_RETRY_MAX_DELAY=2s")
	k := newTired(t)
	s := p.stage(t, "k="+k.URL+"/old")
	at := s.publish("one")
	eventually(t, "the request", func() bool { return k.count("/old one") == 1 })
	k.rested()
	s.awaitStatus(at, "DELIVERED")
	s.requireNotHeld(s.path("/consumer/k"))
	eventually(t, "the gauge to end", func() bool {
		return !strings.Contains(s.do("GET", "/metrics/consumers", "", "X-Broker-Admin-Token", adminToken).body,
			"penstock_consumer_held_seconds{")
	})
	require.Equal(t, 2, k.count("/old one"), strconv.Quote("one"))
}

// A producer sees that its reply URL has asked for rest, and a new one gets the replies at once.
func TestAHoldOfRepliesIsShownToTheProducerAndEndsWithItsURL(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RETRY_BACKOFF=50ms")
		replies := newTired(t)
		consumer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("done"))
		}))
		t.Cleanup(consumer.Close)
		s := p.stage(t)
		s.put("/producer/p", "replyUrl", replies.URL+"/old")
		s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", consumer.URL, "responses", "callback")
		before := s.do("GET", "/producer/p", "")
		s.publish("one")
		s.requireHeld("/producer/p")
		require.Equal(t, before.header.Get("ETag"), s.do("GET", "/producer/p", "").header.Get("ETag"),
			"it is no change of the producer")
		s.put("/producer/p", "replyUrl", replies.URL+"/new")
		eventually(t, "the reply", func() bool { return replies.count("/new done") == 1 })
		s.requireNotHeld("/producer/p")
	})
}
