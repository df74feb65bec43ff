package main

import (
	"net/http"
	"path"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// With identity=producer two producers may use one ID. Consumers know their two messages as two.
func TestConsumersKnowTheMessagesOfTwoProducersApart(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RETRY_BACKOFF=300ms", "BROKER_MAX_RETRIES=2")
		for name, story := range map[string]func(*testing.T, *process){
			"a push consumer, at every attempt, redrive and replay": toldApart,
			"a pull consumer": pulledApart,
			"the status URL":  askedApart,
			"responses":       respondedApart,
			"where the ID is of the channel it stays":  toldAsEver,
			"a dead letter says which message it was ": forwardedApart,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// twoOf publishes the same ID of two producers, whose IDs are the payloads, and returns the IDs that consumers
// know by payload.
func (s *stage) twoOf(id, one, two string, headers ...string) map[string]string {
	s.t.Helper()
	known := map[string]string{}
	for _, producer := range []string{one, two} {
		r := s.do("POST", s.path("/broadcast"), producer, append(append([]string{"X-Broker-Message-ID", id},
			s.as(producer)...), headers...)...)
		require.Equal(s.t, 201, r.status, r.body)
		known[producer] = idOf(r.header.Get("Location"))
		again := s.do("POST", s.path("/broadcast"), producer, append(append([]string{"X-Broker-Message-ID", id},
			s.as(producer)...), headers...)...)
		requireProblem(s.t, again, 409, "duplicate_message_id")
	}
	require.NotEqual(s.t, known[one], known[two])
	return known
}

func (s *stage) scoped() { s.put(s.path(), "identity", "producer") }

func toldApart(t *testing.T, p *process) {
	sink := newSink(t, func(n int, _ received) int { return map[bool]int{true: 500, false: 204}[n <= 8] })
	s := p.stage(t, "k="+sink.URL)
	s.scoped()
	s.put(s.path("/consumer/k"), "signingSecret", "generate", "dlq", "keep")
	known := s.twoOf("order-0", "told-a", "told-b", "X-Broker-Metadata-Headers", "X-Broker-Producer-ID,X-Mine",
		"X-Mine", "yes")
	for _, id := range known {
		s.awaitStatus(s.path("/message/", id), "DEAD")
	}
	require.Equal(t, 202, s.redriveAll("k", "k-token").status)
	for _, id := range known {
		s.awaitStatus(s.path("/message/", id), "DELIVERED")
	}
	at := s.replay("k", everSince)
	eventually(t, "the replay", func() bool { return s.replayAt(at).State == "DONE" && len(copies(sink, idOf(at))) == 2 })
	times := map[string]int{}
	for _, r := range sink.all() {
		times[r.body]++
		require.Equal(t, []string{r.body}, r.header.Values("X-Broker-Producer-ID"))
		require.Equal(t, known[r.body], r.header.Get("X-Broker-Message-ID"))
		require.Equal(t, known[r.body], r.header.Get("webhook-id"))
	}
	require.GreaterOrEqual(t, times["told-a"], 5)
	require.GreaterOrEqual(t, times["told-b"], 5)
	for producer := range known { // its producer knows it by its own ID
		r := s.do("GET", s.path("/message/order-0"), "", s.as(producer)...)
		var m apitype.Message
		strictjson.Decode(t, []byte(r.body), &m)
		require.Equal(t, [2]string{"order-0", producer}, [2]string{m.ID, m.Payload})
	}
}

func pulledApart(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.scoped()
	known := s.twoOf("order-0", "pulled-a", "pulled-b")
	for _, j := range s.awaitQueued("k", 2) {
		require.Equal(t, j.Message.Payload, j.Message.ProducerID)
		require.Equal(t, known[j.Message.Payload], j.Message.MessageID)
	}
	r := s.do("POST", s.path("/consumer/k/claim"), "", consumerTokens("k")...)
	var claimed apitype.ClaimedJobs
	strictjson.Decode(t, []byte(r.body), &claimed)
	require.Len(t, claimed.Result, 2)
	for _, j := range claimed.Result {
		require.Equal(t, j.Message.Payload, j.Message.ProducerID)
		require.Equal(t, known[j.Message.Payload], j.Message.MessageID)
	}
}

// A status URL that knows the message of one producer says nothing about that of another.
func askedApart(t *testing.T, p *process) {
	var mu sync.Mutex
	done, breaks, got := map[string]bool{}, 1, map[string]int{}
	url := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet {
			if !done[path.Base(r.URL.Path)] || path.Base(r.URL.Path) != r.Header.Get("X-Broker-Message-ID") {
				w.WriteHeader(404)
			}
			return
		}
		producer := r.Header.Get("X-Broker-Producer-ID")
		if producer == "asked-b" && breaks > 0 { // it ends before it has processed anything
			breaks--
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		done[r.Header.Get("X-Broker-Message-ID")] = true
		got[producer]++
	})
	s := p.stage(t, "k="+url)
	s.scoped()
	s.put(s.path("/consumer/k"), "statusUrl", url+"/status/{messageID}")
	for _, id := range s.twoOf("order-1", "asked-a", "asked-b") {
		s.awaitStatus(s.path("/message/", id), "DELIVERED")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{"asked-a": 1, "asked-b": 1}, got)
}

func respondedApart(t *testing.T, p *process) {
	results := newAsked(t, nil)
	s := p.stage(t, "posts")
	s.scoped()
	s.put(s.path("/consumer/posts"), "responses", "store")
	s.put(s.path("/consumer/polled"), "token", "polled-token", "callbackUrl", results.URL+"/in", "responses", "store",
		"async", "true", "resultUrl", results.URL+"/of/{messageID}")
	known := s.twoOf("order-2", "answered-a", "answered-b")
	for _, j := range s.awaitQueued("posts", 2) {
		r := s.do("POST", s.path("/message/", j.Message.MessageID, "/response"), "re: "+j.Message.Payload,
			append(consumerTokens("posts"), "X-Broker-Consumer-ID", "posts", "X-Broker-Producer-ID", j.Message.ProducerID)...)
		require.Equal(t, 202, r.status, r.body)
	}
	for producer, id := range known {
		for _, name := range []string{"order-2", id} {
			r := s.do("GET", s.path("/message/", name, "/responses"), "", s.as(producer)...)
			require.Contains(t, r.body, `"re: `+producer+`"`)
		}
		eventually(t, "the result", func() bool {
			results.mu.Lock()
			defer results.mu.Unlock()
			return len(results.polls["/of/"+id]) > 1
		})
	}
	results.mu.Lock()
	defer results.mu.Unlock()
	require.Empty(t, results.polls["/of/order-2"])
}

func toldAsEver(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL, "pull")
	s.put(s.path("/consumer/k"), "signingSecret", "generate")
	s.publish("own", "X-Broker-Message-ID", "order-3", "X-Broker-Metadata-Headers", "X-Broker-Producer-ID")
	requireOnce(t, sink, "own")
	got := sink.all()[0].header
	require.Equal(t, []string{"order-3", "order-3", "p"}, []string{got.Get("X-Broker-Message-ID"), got.Get("webhook-id"),
		got.Get("X-Broker-Producer-ID")})
	j := s.awaitQueued("pull", 1)[0]
	require.Equal(t, []string{"order-3", "p"}, []string{j.Message.MessageID, j.Message.ProducerID})
}

func forwardedApart(t *testing.T, p *process) {
	target := newSink(t, nil)
	to := p.stage(t, "k="+target.URL)
	s := p.stage(t, "k="+newSink(t, func(int, received) int { return 500 }).URL)
	s.scoped()
	s.put(s.path("/consumer/k"), "dlq", "forward:"+to.channel)
	known := s.twoOf("order-4", "dead-a", "dead-b")
	requireOnce(t, target, "dead-a", "dead-b")
	for _, r := range target.all() {
		require.Equal(t, known[r.body], r.header.Get("X-Dead-Message-ID"))
		require.Equal(t, r.body, r.header.Get("X-Broker-Producer-ID"))
	}
}
