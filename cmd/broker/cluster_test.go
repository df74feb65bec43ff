package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// trio starts three brokers at once on an empty database.
func trio(t *testing.T, w *world) []*process {
	ps := []*process{w.launch(), w.launch(), w.launch()}
	for _, p := range ps {
		p.awaitReady()
	}
	return ps
}

// nodeOf reads the node number from the log line that says that a broker is ready.
func nodeOf(t *testing.T, p *process) int {
	for line := range strings.Lines(p.log.String()) {
		var entry struct {
			Msg  string
			Node *int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "broker is ready" {
			require.NotNil(t, entry.Node)
			return *entry.Node
		}
	}
	t.Fatalf("no broker is ready in\n%s", p.log)
	return 0
}

func TestClusterOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms")
	ps := trio(t, w)
	t.Run("brokers have different node numbers", func(t *testing.T) {
		nodes := map[int]bool{}
		for _, p := range ps {
			nodes[nodeOf(t, p)] = true
		}
		require.Len(t, nodes, 3)
	})
	for name, story := range map[string]func(*testing.T, []*process){
		"a consumer put at one broker gets what is posted at another a moment later": everyNewConsumer,
		"a rotated token counts everywhere":                                          rotatedTokens,
		"a change at one broker is seen at another at once":                          changesAreSeen,
		"of the same message ID posted everywhere one is stored":                     duplicateIDs,
		"of different messages with one ID posted everywhere one is stored":          fiftyOfOneID,
		"a pull job is one job on all brokers":                                       oneJobEverywhere,
	} {
		t.Run(name, func(t *testing.T) { parallel(t); story(t, ps) })
	}
}

func everyNewConsumer(t *testing.T, ps []*process) {
	const channels, consumers = 30, 10
	var mu sync.Mutex
	got := map[string]int{}
	callback := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got[r.URL.Path+" "+string(body)]++
		mu.Unlock()
	})
	want := map[string]int{}
	for range channels {
		s := ps[0].stage(t)
		for k := range consumers {
			s.join(fmt.Sprintf("k%d=%s/%s/%d", k, callback, s.channel, k))
			s.on(ps[1+k%2]).publish(strconv.Itoa(k))
			for earlier := range k + 1 {
				want[fmt.Sprintf("/%s/%d %d", s.channel, earlier, k)] = 1
			}
		}
	}
	eventually(t, "every message at every consumer that was there", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, want, got)
}

func rotatedTokens(t *testing.T, ps []*process) {
	s := ps[0].stage(t, "k")
	there := s.on(ps[1])
	there.publish("with the first token")
	for round := range 5 {
		token := fmt.Sprintf("rotated-%d", round)
		s.put(s.path(), "token", token)
		r := there.do("POST", s.path("/broadcast"), "x", "X-Broker-Channel-Token", token, "X-Broker-Producer-ID", "p",
			"X-Broker-Producer-Token", "p-token")
		require.Equal(t, 201, r.status, "the new one is good everywhere at once")
		eventually(t, "the old one to be refused everywhere", func() bool { return there.post("x").status == 403 })
		require.Equal(t, 403, s.post("x").status)
	}
	s.put(s.path(), "token", "c-token")
	s.put(s.path("/consumer/k"), "token", "new-token")
	r := there.do("GET", s.path("/consumer/k/queued-jobs"), "", "X-Broker-Channel-Token", "c-token",
		"X-Broker-Consumer-Token", "new-token")
	require.Equal(t, 200, r.status, r.body)
}

func changesAreSeen(t *testing.T, ps []*process) {
	s := ps[0].stage(t)
	for i := range 20 {
		here, there := s.on(ps[i%3]), s.on(ps[(i+1)%3])
		name := fmt.Sprintf("name %d", i)
		here.put(s.path(), "name", name)
		require.Equal(t, name, there.do("GET", s.path(), "").json(t)["Name"])
		k := s.path("/consumer/k") + strconv.Itoa(i)
		here.put(k, "type", "pull", "token", "t")
		require.Equal(t, "pull", there.do("GET", k, "").json(t)["Type"])
		require.Contains(t, there.do("GET", s.path("/consumers?size=100"), "").body, k)
		at := here.publish("x")
		require.Len(t, there.message(at).Jobs, i+1)
	}
}

func duplicateIDs(t *testing.T, ps []*process) {
	sink := newSink(t, nil)
	s := ps[0].stage(t, "k="+sink.URL)
	var wg sync.WaitGroup
	var mu sync.Mutex
	const ids, each = 40, 2
	codes := map[string]map[int]int{}
	var wrong []string
	for i := range ids {
		codes[fmt.Sprintf("order-%d", i)] = map[int]int{}
	}
	for id, got := range codes {
		for n := range each * len(ps) {
			wg.Go(func() {
				r, err := ps[n%len(ps)].ask("POST", s.path("/broadcast"), id, append(append([]string{}, producerTokens...),
					"X-Broker-Message-ID", id)...)
				mu.Lock()
				defer mu.Unlock()
				got[r.status]++
				if err != nil || r.header.Get("Location") != s.path("/message/", id) {
					wrong = append(wrong, fmt.Sprint(r, err))
				}
			})
		}
	}
	wg.Wait()
	require.Empty(t, wrong, "every answer names the stored message")
	for id, got := range codes {
		require.Equal(t, map[int]int{201: 1, 409: each*len(ps) - 1}, got, id)
	}
	requireProblem(t, s.on(ps[2]).post("order-0", "X-Broker-Message-ID", "order-0"), 409, "duplicate_message_id")
	eventually(t, "all deliveries", func() bool { return sink.distinct() == ids })
	s.awaitRest(sink)
	require.Equal(t, ids, sink.count(), "each once")
	other := ps[1].stage(t)
	require.Equal(t, 201, other.post("x", "X-Broker-Message-ID", "order-0").status, "IDs are per channel")
}

func oneJobEverywhere(t *testing.T, ps []*process) {
	s := ps[0].stage(t, "k")
	for range 10 {
		id := s.newJob("k")
		var mu sync.Mutex
		var leases []string
		var wg sync.WaitGroup
		for n := range 30 {
			wg.Go(func() {
				r, err := ps[n%3].try("POST", s.path("/consumer/k/job/", id), to("INFLIGHT"), consumerTokens("k")...)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && r.header.Get("X-Broker-Lease") != "" {
					leases = append(leases, r.header.Get("X-Broker-Lease"))
				}
			})
		}
		wg.Wait()
		require.Len(t, leases, 1)
		require.Equal(t, 202, s.on(ps[1]).move("k", id, to("DELIVERED"), "X-Broker-Lease", leases[0]).status)
		require.Equal(t, "DELIVERED", s.on(ps[2]).job("k", id).Status)
	}
}

// A broker whose fail-safe is off dies between the commit and the queue: one
// that has it brings the message.
func TestClusterOneBrokerMayHaveNoFailSafeOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	sink := newSink(t, nil)
	without := w.start("BROKER_REAPER=false", envKill+"="+failpoint.BeforeFanout+":2")
	s := without.stage(t, "k="+sink.URL)
	s.publish("first")
	eventually(t, "the first", func() bool { return sink.times("first") == 1 })
	r, err := without.try("POST", s.path("/broadcast"), "second", append(append([]string{}, producerTokens...),
		"X-Broker-Message-ID", "second")...)
	require.True(t, err != nil || r.status == 201, "it is stored, whatever the answer was")
	without.awaitEnd()
	other := s.on(w.start("BROKER_REAPER=false"))
	other.publish("third")
	eventually(t, "the third", func() bool { return sink.times("third") == 1 })
	w.awaitWalks(w.alive()...)
	require.Zero(t, other.gauge(t, walks), "no fail-safe runs")
	require.Zero(t, sink.times("second"), "nobody looks")
	w.start()
	eventually(t, "the second", func() bool { return sink.times("second") == 1 })
	require.Equal(t, 409, other.post("second", "X-Broker-Message-ID", "second").status)
}
