package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A tokenEndpoint keeps one token per client: a new one ends the former one. It counts itself as
// busy when it is asked twice at a time for one client.
type tokenEndpoint struct {
	*httptest.Server
	mu      sync.Mutex
	current map[string]string // Authorization that counts, by client
	since   map[string]time.Time
	asked   map[string]int
	now     map[string]int // requests under way
	most    int
	expires int           // seconds
	takes   time.Duration // until a token is known to the consumers
}

func newTokenEndpoint(t *testing.T) *tokenEndpoint {
	e := &tokenEndpoint{current: map[string]string{}, since: map[string]time.Time{}, asked: map[string]int{},
		now: map[string]int{}, expires: 12}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := r.BasicAuth()
		e.count(client, 1)
		time.Sleep(20 * time.Millisecond) // so that two requests would meet
		e.mu.Lock()
		e.asked[client]++
		token := fmt.Sprintf("%s-%d", client, e.asked[client])
		e.current[client], e.since[client] = "Bearer "+token, time.Now()
		expires := e.expires
		e.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, expires)
		e.count(client, -1)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *tokenEndpoint) count(client string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now[client] += n
	e.most = max(e.most, e.now[client])
}

// answer is that of a consumer: only the last token of a client counts.
func (e *tokenEndpoint) answer(_ int, r received) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for client, current := range e.current {
		if r.header.Get("Authorization") == current && time.Since(e.since[client]) >= e.takes {
			return 204
		}
	}
	return 401
}

// client is the authorization of a client.
func (e *tokenEndpoint) client() string { return "oauth2 " + e.URL + "/token shared s3cret a b" }

// Two consumers share a client, and on real servers so do two brokers. A token counts for two
// seconds. Each renewal ends the former token, and nobody's attempt pays for it.
func TestFaultConsumersAndBrokersOfAClientDoNotTakeTheirTokensAway(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_MAX_RETRIES=0", "BROKER_DELIVERY_TIMEOUT=20s")
		brokers := []*process{w.start()}
		if w.redis != nil {
			brokers = append(brokers, w.start())
		}
		e := newTokenEndpoint(t)
		one, two := newSink(t, e.answer), newSink(t, e.answer)
		s := brokers[0].stage(t, "one="+one.URL, "two="+two.URL)
		for _, k := range []string{"one", "two"} {
			s.put(s.path("/consumer/"+k), "authorization", e.client())
		}
		var sent sync.WaitGroup
		var mu sync.Mutex
		var paths []string
		for i := range 4 {
			from := s.on(brokers[i%len(brokers)])
			sent.Go(func() {
				for n, until := 0, time.Now().Add(7*time.Second); time.Now().Before(until); n++ {
					at := from.publish(fmt.Sprint(i, "-", n))
					mu.Lock()
					paths = append(paths, at)
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		sent.Wait()
		for _, at := range paths {
			for _, j := range s.awaitStatus(at, "DELIVERED").Jobs {
				require.Equal(t, 1, j.Attempts)
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		t.Log(len(brokers), "brokers,", len(paths), "messages,", e.asked["shared"], "tokens,", one.count()+
			two.count()-2*len(paths), "refused requests")
		require.Equal(t, 1, e.most, "requests for a token at a time")
		require.GreaterOrEqual(t, e.asked["shared"], 3)
		require.LessOrEqual(t, e.asked["shared"], 8)
	})
}

// A new token takes three seconds until the consumer knows it.
func TestAConsumerThatRefusesARenewedTokenIsHeldAndPaysNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_MAX_RETRIES=0")
		e := newTokenEndpoint(t)
		e.expires, e.takes = 3600, 3*time.Second
		sink := newSink(t, e.answer)
		s := p.stage(t, "k="+sink.URL)
		s.put(s.path("/consumer/k"), "authorization", e.client())
		var paths []string
		for i := range 20 {
			paths = append(paths, s.publish(fmt.Sprint(i)))
		}
		for _, at := range paths {
			require.Equal(t, 1, s.awaitStatus(at, "DELIVERED").Jobs[0].Attempts)
		}
		require.Less(t, sink.count(), 100, "it is held meanwhile")
		e.mu.Lock()
		require.Equal(t, 1, e.asked["shared"], "a token that is new is not renewed")
		e.mu.Unlock()
		require.Positive(t, p.count(t, `penstock_delivery_attempts_total{outcome="token_refused"}`))
		require.NotContains(t, p.log.String(), "s3cret")
	})
}
