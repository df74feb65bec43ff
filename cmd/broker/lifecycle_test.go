package main

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/lifecycle"
)

// A fault happens between the changes of the resources and what follows from them. It returns the
// broker that the rows go on with.
type lifeFault struct {
	name   string
	on     string // the stores on which it happens, as onEachStore names them; "": both
	happen func(w *world, p *process, start func() *process) *process
}

var lifeFaults = []lifeFault{
	{"nothing", "", func(_ *world, p *process, _ func() *process) *process { return p }},
	{"a killed broker", "embedded", func(_ *world, p *process, start func() *process) *process {
		p.kill()
		return start()
	}},
	{"a wiped Redis", "real servers", func(w *world, p *process, _ func() *process) *process { w.flushall(); return p }},
	{"another broker, after a killed one and a wiped Redis", "real servers", func(w *world, p *process,
		start func() *process) *process {
		other := start()
		p.kill()
		w.flushall()
		return other
	}},
}

// A turn is the time of a fault: every row has made its change, and no row has looked yet.
type turn struct {
	made  sync.WaitGroup // the changes
	over  chan struct{}
	after *process // to go on with; set before over is closed
}

// Each row of the table of docs/explain/lifecycle.md is kept, on both kinds of stores, whatever happens
// between the change and what follows from it.
func TestFaultsChangeNothingOfWhatBelongsToAResourceAsTheTableSays(t *testing.T) {
	checks := map[string]func(*testing.T, *life){}
	for _, some := range []map[string]func(*testing.T, *life){producerLives, channelLives, consumerLives, otherLives} {
		for key, check := range some {
			checks[key] = check
		}
	}
	for _, row := range lifecycle.Table {
		require.Contains(t, checks, row.Key(), "a row without a check")
	}
	require.Len(t, checks, len(lifecycle.Table), "a check without a row")
	onEachStore(t, func(t *testing.T, w *world) {
		for _, f := range lifeFaults {
			if f.on == "embedded" && w.redis != nil || f.on == "real servers" && w.redis == nil {
				continue
			}
			t.Run(f.name, func(t *testing.T) { livesThrough(t, w, f, checks) })
		}
	})
}

// livesThrough checks all rows at once on one broker, with one fault for all of them.
func livesThrough(t *testing.T, w *world, f lifeFault, checks map[string]func(*testing.T, *life)) {
	start := func() *process {
		return w.start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s",
			"BROKER_RETRY_BACKOFF=300ms",
			"BROKER_MAX_RETRIES=1000", "BROKER_RETRY_MAX_DELAY=300ms", "BROKER_ADAPTIVE_PERIOD=1s",
			"BROKER_FETCH_EGRESS=private")
	}
	p, now := start(), &turn{over: make(chan struct{})}
	defer p.kill() // the next fault has brokers of its own
	var rows sync.WaitGroup
	defer rows.Wait()
	defer func() { close(now.over) }()
	for key, check := range checks {
		now.made.Add(1)
		rows.Go(func() {
			made := sync.OnceFunc(now.made.Done)
			defer made()
			t.Run(key, func(t *testing.T) { check(t, &life{p.stage(t), now, made}) })
		})
	}
	now.made.Wait()
	now.after = f.happen(w, p, start)
	if now.after != p {
		t.Cleanup(now.after.kill)
	}
}

// A life is the stage of one row.
type life struct {
	*stage
	turn *turn
	made func()
}

// meanwhile is where the fault happens: the row has made its change. A row may come here again.
func (s *life) meanwhile() {
	s.t.Helper()
	s.made()
	<-s.turn.over
	require.NotNil(s.t, s.turn.after, "the fault has failed")
	s.process = s.turn.after.in(s.t)
}

// own is the name of a producer of this stage alone.
func (s *stage) own() string { return s.channel + "-producer" }

// stored returns how many messages the channel of this stage has, at most 100.
func (s *stage) stored() int {
	s.t.Helper()
	return strings.Count(s.do("GET", s.path("/messages?size=100"), "").body, "/message/")
}

// publishAs publishes as a producer and returns the path of the message or schedule.
func (s *stage) publishAs(producer, body string, headers ...string) string {
	s.t.Helper()
	r := s.do("POST", s.path("/broadcast"), body, append(tokensOf(producer), headers...)...)
	require.Equal(s.t, 201, r.status, r.body)
	return r.header.Get("Location")
}

func tokensOf(producer string) []string {
	return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token",
		producer + "-token"}
}

// answers returns the responses to a message, as management sees them.
func (s *stage) answers(at string) (v apitype.Responses) {
	s.t.Helper()
	r := s.do("GET", at+"/responses", "")
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &v))
	return v
}

// awaitAnswer waits until the only response to a message is in a state.
func (s *stage) awaitAnswer(at, state string) (v apitype.Response) {
	s.t.Helper()
	eventually(s.t, "the exchange to be "+state, func() bool {
		all := s.answers(at).Result
		if len(all) == 1 {
			v = all[0]
		}
		return v.State == state
	})
	return v
}

// responder joins a push consumer whose responses go back.
func (s *stage) responder(fields ...string) *sink {
	s.t.Helper()
	k := newSink(s.t, func(int, received) int { return 200 })
	s.put(s.path("/consumer/k"), append([]string{"token", "k-token", "callbackUrl", k.URL, "responses", "callback"},
		fields...)...)
	return k
}

// replyTo makes the producer of this stage with a reply URL that answers with a status.
func (s *stage) replyTo(status int) *sink {
	s.t.Helper()
	to := newSink(s.t, func(int, received) int { return status })
	s.put("/producer/"+s.own(), "token", s.own()+"-token", "replyUrl", to.URL)
	return to
}

// onItsWay publishes a message whose reply the URL has refused at least once.
func (s *stage) onItsWay(to *sink) (at string) {
	s.t.Helper()
	at = s.publishAs(s.own(), "m")
	eventually(s.t, "a try of the reply", func() bool { return to.count() > 0 })
	return at
}

// batchOnItsWay makes the producer of this stage with a reply URL that has refused a batch of its events.
func (s *stage) batchOnItsWay() (to *sink) {
	s.t.Helper()
	to = s.replyTo(500)
	s.put("/producer/"+s.own(), "statusEvents", "delivered")
	s.join("k=" + newSink(s.t, nil).URL)
	s.publishAs(s.own(), "m")
	eventually(s.t, "a batch of events", func() bool { return to.count() > 0 })
	return to
}

// quiet requires that a sink gets nothing more, for as long as several retries take. One request may have
// been on its way when the change was made, and come late on a slow machine.
func (s *stage) quiet(k *sink) {
	s.t.Helper()
	count := func() int {
		eventually(s.t, "what is under way", func() bool { return k.open.Load() == 0 })
		return k.count()
	}
	still := func() (before, after int) {
		before = count()
		time.Sleep(1500 * time.Millisecond)
		return before, k.count()
	}
	before, after := still()
	if after == before+1 {
		before, after = still()
	}
	require.Equal(s.t, before, after, "requests that must not be made")
}

// senderTo returns the path of the consumer that posts replies to a URL.
func (s *stage) senderTo(to *sink) (at string) {
	s.t.Helper()
	eventually(s.t, "the consumer of replies", func() bool {
		var page struct{ Result []string }
		require.NoError(s.t, json.Unmarshal([]byte(s.do("GET", "/channels?size=100&first=~replies-", "").body), &page))
		for _, ch := range page.Result {
			r := s.do("GET", ch+"/consumer/sender", "")
			if r.status == 200 && s.decodeConsumer(r).CallbackURL == to.URL {
				at = ch + "/consumer/sender"
			}
		}
		return at != ""
	})
	return at
}

func (s *stage) stateAt(path string) string {
	s.t.Helper()
	return s.decodeConsumer(s.do("GET", path, "")).State
}
