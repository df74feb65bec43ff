package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A hanging is a server whose answers do not come before the end of the attack, or of the request.
type hanging struct {
	*httptest.Server
	now     atomic.Int64 // requests that hang
	release chan struct{}
}

// newHanging answers POST at once if accept is set: the result comes later, and never.
func newHanging(t *testing.T, accept bool) *hanging {
	h := &hanging{release: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if accept && q.Method == http.MethodPost {
			w.Header().Set("Location", "/result")
			w.WriteHeader(http.StatusAccepted)
			return
		}
		h.now.Add(1)
		defer h.now.Add(-1)
		select {
		case <-h.release:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.end)
	return h
}

func (h *hanging) end() {
	select {
	case <-h.release:
	default:
		close(h.release)
	}
}

// crowd makes channels with a consumer each and publishes messages on all of them.
func (s *stage) crowd(t *testing.T, channels, messages int, fields ...string) (all []*stage) {
	for range channels {
		other := s.process.stage(t)
		other.put(other.path("/consumer/k"), fields...)
		r := other.do("POST", other.path("/batch"), strings.Repeat(`{"Payload":"x"}`+"\n", messages),
			append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
		require.Equal(t, 200, r.status, r.body)
		all = append(all, other)
	}
	return all
}

// Consumers whose answers hang, and receivers whose results hang, take their parts of the memory, the
// slots and the polls. The replies and results of others come meanwhile.
func TestHangingAnswersAndResultsDelayNobodyElse(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		answers, results := newHanging(t, false), newHanging(t, true)
		quick := newReceiver(t, 0)
		s := w.start("BROKER_DELIVERY_TIMEOUT=4m").stage(t)
		s.put("/producer/p", "token", "p-token", "replyUrl", quick.URL+"/reply")
		s.put(s.path("/consumer/sync"), "callbackUrl", quick.URL+"/sync", "responses", "callback")
		s.put(s.path("/consumer/late"), "callbackUrl", quick.URL+"/async", "responses", "store", "async", "true")
		s.crowd(t, 4, 200, "callbackUrl", answers.URL, "responses", "store", "responseMaxBytes", "1048576")
		s.crowd(t, 20, 40, "callbackUrl", results.URL, "responses", "store", "async", "true")
		eventually(t, "the attack", func() bool { return answers.now.Load() >= 100 && results.now.Load() >= 12 })
		before := answers.now.Load()
		for i := range 10 {
			id := fmt.Sprintf("m%d", i)
			s.publish(id, "X-Broker-Message-ID", id)
			eventually(t, "the reply and the result of "+id, func() bool {
				n, _ := quick.got(id)
				v := s.responses(id, "")
				late := slices.IndexFunc(v.Result, func(e apitype.Response) bool { return e.ConsumerID == "late" })
				return n == 1 && v.Result[late].Body == "result of "+id
			})
		}
		require.GreaterOrEqual(t, answers.now.Load(), before, "they still hang")
		require.GreaterOrEqual(t, results.now.Load(), int64(12))
		answers.end()
		results.end()
		eventually(t, "the end of the attack", func() bool {
			return s.bound("responses") == 0 && s.bound("result_polls") < 128
		})
	})
}

// Consumers with a backlog that hang from their first request on, twice as many as there are slots for,
// leave slots to a consumer that answers, and to one that comes later.
func TestHangingConsumersLeaveSlotsToOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		hangs, quick := newHanging(t, false), newSink(t, nil)
		s := w.start("BROKER_DELIVERY_TIMEOUT=4m").stage(t, "k="+quick.URL)
		s.crowd(t, 16, 200, "callbackUrl", hangs.URL)
		eventually(t, "the attack", func() bool { return hangs.now.Load() >= 150 })
		for i := range 20 {
			s.publish(fmt.Sprint("m", i))
		}
		eventually(t, "the deliveries of the other", func() bool { return quick.count() == 20 })
		late := newSink(t, nil)
		s.process.put(s.path("/consumer/late"), "callbackUrl", late.URL)
		s.publish("for both")
		eventually(t, "the delivery to a new one", func() bool { return late.count() == 1 })
		require.GreaterOrEqual(t, hangs.now.Load(), int64(150), "they still hang")
	})
}

// bound returns what is held of a bound.
func (p *process) bound(name string) (held float64) {
	p.t.Helper()
	_, rest, found := strings.Cut(p.do("GET", "/metrics", "").body, `penstock_share_held{bound="`+name+`"} `)
	require.True(p.t, found, name)
	require.NoError(p.t, json.NewDecoder(strings.NewReader(rest)).Decode(&held))
	return held
}

// Producers whose files drip hold the places for files: one alone a half of them, many together all.
// The rows and files of another producer come meanwhile, and no slow bulk fails for that.
func TestSlowFilesDelayNoOtherProducersBulks(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		var dripping atomic.Int64
		slow := file(t, func(w http.ResponseWriter, q *http.Request) {
			dripping.Add(1)
			defer dripping.Add(-1)
			w.Header().Set("Content-Length", "1000000")
			for q.Context().Err() == nil {
				_, _ = w.Write([]byte("a"))
				w.(http.Flusher).Flush()
				select {
				case <-q.Context().Done():
				case <-time.After(time.Second):
				}
			}
		})
		good := file(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Payload\nx\n")) })
		s := w.start(fetchInside).stage(t)
		all := []string{}
		post := func(producer, url string) string {
			s.put("/producer/"+producer, "token", "p-token")
			r := s.do("POST", s.path("/bulk"), `{"FileURL":"`+url+`","Format":"csv"}`, "Content-Type", "application/json",
				"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token", "p-token")
			require.Equal(t, 202, r.status, r.body)
			return r.header.Get("Location")
		}
		for range 20 {
			all = append(all, post("slow", slow))
		}
		eventually(t, "the first attack", func() bool { return s.bound("bulk_fetches") == 8 && dripping.Load() >= 8 })
		s.awaitBulk(s.bulk("text/csv", "Payload\nx\n"), "DONE")
		s.awaitBulk(post("good", good), "DONE")
		require.EqualValues(t, 8, s.bound("bulk_fetches"), "one producer has a half")
		for i := range 16 {
			all = append(all, post(fmt.Sprintf("slow%d", i), slow))
		}
		eventually(t, "the second attack", func() bool { return s.bound("bulk_fetches") == 16 })
		s.awaitBulk(s.bulk("text/csv", "Payload\nx\n"), "DONE")
		s.awaitBulk(post("good", good), "DONE")
		for _, at := range all {
			require.Equal(t, "FETCHING", s.bulkAt(at).State)
		}
	})
}
