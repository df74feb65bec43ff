package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// A repeat of a message is not stored again, and a channel and its producers choose what counts as a
// repeat and what it is answered.
func TestRepeatsAreAnsweredAsTheChannelSays(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"duplicates are acknowledged":              acknowledged,
			"lines of a batch are acknowledged":        acknowledgedLines,
			"an ID belongs to its producer":            identityOfProducers,
			"an idempotency key":                       idempotencyKey,
			"an idempotency key belongs to a producer": idempotencyKeyOfProducers,
			"keys that cannot be":                      badIdempotencyKeys,
			"fields of a channel":                      intakeFields,
			"of fifty posts with one key one is stored": func(t *testing.T, p *process) {
				fiftyOfOneKey(t, []*process{p})
			},
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

const replayed = "Idempotent-Replayed"

// requireOnce waits for deliveries of these bodies, and requires that there are no others.
func requireOnce(t *testing.T, sink *sink, bodies ...string) {
	t.Helper()
	eventually(t, "the deliveries", func() bool { return sink.count() >= len(bodies) })
	time.Sleep(200 * time.Millisecond)
	var got []string
	for _, r := range sink.all() {
		got = append(got, r.body)
	}
	require.ElementsMatch(t, bodies, got)
}

func acknowledged(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path(), "duplicates", "acknowledge")
	at := s.publish("one", first()...)
	for range 2 {
		r := s.post("one", first()...)
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, at, r.header.Get("Location"))
		require.Equal(t, "true", r.header.Get(replayed))
		require.Empty(t, r.body)
	}
	requireConflict(t, s.post("two", first()...))
	s.put(s.path(), "duplicates", "")
	requireProblem(t, s.post("one", first()...), 409, "duplicate_message_id")
	requireOnce(t, sink, "one")
}

func acknowledgedLines(t *testing.T, p *process) {
	s := p.stage(t, "k")
	s.put(s.path(), "duplicates", "acknowledge")
	lines := `{"MessageID":"a","Payload":"1"}` + "\n" + `{"MessageID":"a","Payload":"1"}` + "\n" +
		`{"MessageID":"a","Payload":"2"}` + "\n"
	for round := range 2 {
		r := s.do("POST", s.path("/batch"), lines, append([]string{"Content-Type", "application/x-ndjson"},
			producerTokens...)...)
		status := []int{201, 200, 409}
		if round > 0 {
			status[0] = 200
		}
		for i, text := range strings.Split(strings.TrimSpace(r.body), "\n") {
			require.Contains(t, text, fmt.Sprintf(`{"Status":%d`, status[i]), r.body)
			if status[i] < 400 {
				require.Contains(t, text, `"MessageID":"a","Location":"`+s.path("/message/a")+`"`)
			}
		}
	}
	require.Len(t, s.awaitQueued("k", 1), 1)
	require.GreaterOrEqual(t, p.gauge(t, "penstock_acknowledged_repeats_total"), 3.0)
}

// as returns the tokens of another producer.
func (s *stage) as(producer string) []string {
	s.put("/producer/"+producer, "token", producer+"-token")
	return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token",
		producer + "-token"}
}

func identityOfProducers(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path(), "identity", "producer")
	one, two := s.as("one"), s.as("two")
	post := func(tokens []string, body, id string) reply {
		return s.do("POST", s.path("/broadcast"), body, append([]string{"X-Broker-Message-ID", id}, tokens...)...)
	}
	a, b := post(one, "of one", "x"), post(two, "of two", "x")
	require.Equal(t, 201, a.status, a.body)
	require.Equal(t, 201, b.status, b.body)
	require.NotEqual(t, a.header.Get("Location"), b.header.Get("Location"))
	r := post(one, "of one", "x")
	requireProblem(t, r, 409, "duplicate_message_id")
	require.Equal(t, a.header.Get("Location"), r.header.Get("Location"))
	requireConflict(t, post(one, "another", "x"))
	for at, body := range map[string]string{a.header.Get("Location"): "of one", b.header.Get("Location"): "of two"} {
		m := s.message(at)
		require.Equal(t, body, m.Payload)
		require.Equal(t, "x", m.ID)
	}
	// Each producer finds its own message under the ID.
	for _, tokens := range [][]string{one, two} {
		r := s.do("GET", s.path("/message/x"), "", tokens...)
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, "of "+tokens[3])
	}
	requireOnce(t, sink, "of one", "of two")
	for _, r := range sink.all() { // consumers know a message by the ID that its Location has
		at := map[string]reply{"of one": a, "of two": b}[r.body].header.Get("Location")
		require.Equal(t, at, s.path("/message/", r.header.Get("X-Broker-Message-ID")))
		require.Equal(t, "of "+r.header.Get("X-Broker-Producer-ID"), r.body)
	}
	requireProblem(t, post(one, "long", strings.Repeat("x", 248)), 400, "invalid_message_id")
	require.Equal(t, 201, post(one, "longest", strings.Repeat("x", 247)).status)
	line := s.do("POST", s.path("/batch"), `{"MessageID":"x","Payload":"of one"}`,
		append([]string{"Content-Type", "application/x-ndjson"}, one...)...)
	require.Contains(t, line.body, `"code":"duplicate_message_id"`)
	require.Contains(t, line.body, `"MessageID":"x","Location":"`+a.header.Get("Location")+`"`)
}

func idempotencyKey(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	key := []string{"Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}
	a := s.post("one", key...)
	require.Equal(t, 201, a.status, a.body)
	require.Empty(t, a.header.Get(replayed))
	for _, same := range [][]string{key, {"Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324"}} {
		r := s.post("one", same...)
		require.Equal(t, 201, r.status, r.body)
		require.Equal(t, a.header.Get("Location"), r.header.Get("Location"))
		require.Equal(t, "true", r.header.Get(replayed))
	}
	// An empty key is a key that the client forgot to fill in, not a message without one.
	for _, bad := range []string{"", `""`, `"`, `"a`, "\u00e4", strings.Repeat("x", 256)} {
		requireProblem(t, s.post("one", "Idempotency-Key", bad), 400, "invalid_idempotency_key")
	}
	r := s.post("two", key...)
	requireProblem(t, r, 422, "idempotency_key_reused")
	require.Empty(t, r.header.Get("Location"))
	m := s.message(a.header.Get("Location"))
	require.Equal(t, "one", m.Payload)
	require.Contains(t, a.header.Get("Location"), m.ID, "the broker has made the ID")
	b := s.post("one", "Idempotency-Key", "another")
	require.Equal(t, 201, b.status)
	require.NotEqual(t, a.header.Get("Location"), b.header.Get("Location"))
	requireOnce(t, sink, "one", "one")
}

func idempotencyKeyOfProducers(t *testing.T, p *process) {
	s := p.stage(t, "k")
	var at []string
	for _, producer := range []string{"one", "two"} {
		r := s.do("POST", s.path("/broadcast"), "of "+producer, append([]string{"Idempotency-Key", "k"},
			s.as(producer)...)...)
		require.Equal(t, 201, r.status, r.body)
		at = append(at, r.header.Get("Location"))
	}
	require.NotEqual(t, at[0], at[1])
	require.Len(t, s.awaitQueued("k", 2), 2)
}

func badIdempotencyKeys(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for _, key := range []string{`"`, `""`, strings.Repeat("x", 256), `"a"b"`, `"a\b"`, "\u00e4"} {
		requireProblem(t, s.post("x", "Idempotency-Key", key), 400, "invalid_idempotency_key")
	}
	requireProblem(t, s.post("x", "Idempotency-Key", "k", "X-Broker-Message-ID", "m"), 400, "invalid_idempotency_key")
	requireProblem(t, s.do("POST", s.path("/batch"), "{}", append([]string{"Content-Type", "application/x-ndjson",
		"Idempotency-Key", "k"}, producerTokens...)...), 400, "invalid_idempotency_key")
	require.Equal(t, 201, s.post("x", "Idempotency-Key", `"a \"b\" \\"`).status)
	require.Equal(t, "true", s.post("x", "Idempotency-Key", `a "b" \`).header.Get(replayed))
	require.Len(t, s.awaitQueued("k", 1), 1)
}

func intakeFields(t *testing.T, p *process) {
	s := p.stage(t)
	for _, bad := range [][]string{{"duplicates", "ignore"}, {"identity", "source"},
		{"expectEvery", "often"}, {"expectEvery", "99ms"}, {"expectEvery", "-1h"}} {
		r := s.do("PUT", s.path(), bad[0]+"="+bad[1], "Content-Type", formType)
		requireProblem(t, r, 400, "invalid_policy")
		require.Contains(t, r.body, bad[0])
	}
	channel := func() (ch apitype.Channel) {
		r := s.do("GET", s.path(), "")
		require.Equal(t, 200, r.status, r.body)
		strictjson.Decode(t, []byte(r.body), &ch)
		return ch
	}
	ch := channel()
	require.Equal(t, []string{"refuse", "channel"}, []string{ch.Duplicates, ch.Identity})
	s.put(s.path(), "duplicates", "acknowledge", "identity", "producer")
	s.put(s.path(), "name", "new")
	ch = channel()
	require.Equal(t, []string{"acknowledge", "producer", "new", "0s"}, []string{ch.Duplicates, ch.Identity, ch.Name,
		ch.ExpectEvery})
	s.put(s.path(), "expectEvery", "90m")
	require.Equal(t, "1h30m", channel().ExpectEvery)
	s.put(s.path(), "expectEvery", "")
	require.Equal(t, "0s", channel().ExpectEvery)
}

// fiftyOfOneKey posts fifty messages of one key at once. One is stored, and each answer names it.
func fiftyOfOneKey(t *testing.T, brokers []*process) {
	s := brokers[0].stage(t, "k")
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[string]int{}
	fresh, reused := 0, 0
	for i := range 50 {
		wg.Go(func() {
			body := "body"
			if i%5 == 4 {
				body = "another body"
			}
			r := s.on(brokers[i%len(brokers)]).post(body, "Idempotency-Key", "one")
			mu.Lock()
			defer mu.Unlock()
			switch r.status {
			case 201:
				at[r.header.Get("Location")]++
				if r.header.Get(replayed) == "" {
					fresh++
				}
			case 422:
				reused++
			default:
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, fresh)
	require.Len(t, at, 1)
	require.Contains(t, []int{10, 40}, reused)
	require.Len(t, s.awaitQueued("k", 1), 1)
}

// Keys hold over brokers, a kill and a lost Redis, and end by their age.
func TestFaultIdempotencyKeysHoldThroughAKillAndALostRedis(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	settings := []string{"BROKER_IDEMPOTENCY_RETENTION=20s"}
	brokers := []*process{w.start(settings...), w.start(settings...)}
	s := brokers[0].stage(t, "k")
	fiftyOfOneKey(t, brokers)
	a := s.post("one", "Idempotency-Key", "k")
	require.Equal(t, 201, a.status, a.body)
	w.flushall()
	brokers[0].kill()
	r := s.on(brokers[1]).post("one", "Idempotency-Key", "k")
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, a.header.Get("Location"), r.header.Get("Location"))
	require.Equal(t, "true", r.header.Get(replayed))
	eventually(t, "the end of the key", func() bool {
		r := s.on(brokers[1]).post("two", "Idempotency-Key", "k")
		return r.status == 201 && r.header.Get(replayed) == ""
	})
	require.Len(t, s.on(brokers[1]).awaitQueued("k", 2), 2)
}
