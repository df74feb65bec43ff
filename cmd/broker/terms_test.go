package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/proxy"
)

// Whom a message addresses, how long it lives and what it is ordered by decide its delivery. A repeat
// that asks for something else is another message: it is not acknowledged, since it would reach nobody.
func TestARepeatAsksForTheSameDelivery(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true")
		for name, story := range map[string]func(*testing.T, *process){
			"one message":                            func(t *testing.T, p *process) { repeatedTerms(t, p, "/broadcast") },
			"a request":                              func(t *testing.T, p *process) { repeatedTerms(t, p, "/request") },
			"a scheduled message":                    scheduledTerms,
			"lines of a batch":                       func(t *testing.T, p *process) { lineTerms(t, p, "refuse") },
			"lines of a batch that are acknowledged": func(t *testing.T, p *process) { lineTerms(t, p, "acknowledge") },
			"rows of a bulk":                         rowTerms,
			"what was asked counts, not policies":    askedTerms,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// asked are the terms of a message, others those of other ones.
var (
	askedFor = []string{"X-Broker-Consumers", "a, b", "X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "o"}
	others   = map[string][]string{
		"nothing":              nil,
		"other consumers":      {"X-Broker-Consumers", "b", "X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "o"},
		"one more consumer":    {"X-Broker-Consumers", "a,b,c", "X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "o"},
		"all consumers":        {"X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "o"},
		"another time to live": {"X-Broker-Consumers", "a,b", "X-Broker-Message-TTL", "1h1ms", "X-Broker-Ordering-Key", "o"},
		"no time to live":      {"X-Broker-Consumers", "a,b", "X-Broker-Ordering-Key", "o"},
		"another ordering key": {"X-Broker-Consumers", "a,b", "X-Broker-Message-TTL", "1h", "X-Broker-Ordering-Key", "O"},
		"no ordering key":      {"X-Broker-Consumers", "a,b", "X-Broker-Message-TTL", "1h"},
	}
	sameAsked = []string{"X-Broker-Consumers", "b,a,b", "X-Broker-Message-TTL", "3600s", "X-Broker-Ordering-Key", "o"}
)

// named are the ways to give a message an identity, with the refusals of what is another message and of a
// repeat.
var named = map[string]struct {
	headers         []string
	body            string
	another, repeat string
}{
	"an ID": {[]string{"X-Broker-Message-ID", "order-1"}, "x", "409 message_id_conflict", "409 duplicate_message_id"},
	"a key": {[]string{"Idempotency-Key", "key-1"}, "x", "422 idempotency_key_reused", "201 "},
	"an event": {[]string{"Content-Type", "application/cloudevents+json"},
		`{"specversion":"1.0","id":"1","source":"s","type":"t"}`, "409 message_id_conflict", "409 duplicate_message_id"},
}

func code(t *testing.T, r reply) string {
	t.Helper()
	if r.status < 400 {
		return fmt.Sprint(r.status, " ")
	}
	text, _ := r.json(t)["code"].(string)
	return fmt.Sprint(r.status, " ", text)
}

// onTerms calls f for each way to give an identity, in a channel with the consumers a, b and c.
func onTerms(t *testing.T, p *process, f func(s *stage, way string)) {
	for way := range named {
		s := p.stage(t, "a", "b", "c")
		for _, scope := range []string{"channel", "producer"} {
			s.put(s.path(), "identity", scope)
			if scope == "producer" && way == "a key" { // it is of the producer in any case
				continue
			}
			f(s, way)
		}
	}
}

func repeatedTerms(t *testing.T, p *process, route string) {
	onTerms(t, p, func(s *stage, way string) {
		s.put(s.path("/consumer/a"), "responses", "store")
		n := named[way]
		post := func(terms []string) reply {
			return s.do("POST", s.path(route), n.body, append(append(append([]string{"Prefer", "wait=0"}, producerTokens...),
				n.headers...), terms...)...)
		}
		r := post(askedFor)
		require.Less(t, r.status, 300, r.body)
		for name, terms := range others {
			r := post(terms)
			require.Equal(t, n.another, code(t, r), "%s: %s", way, name)
			require.Empty(t, r.header.Get("Location"), "%s: %s", way, name)
		}
		again := post(sameAsked)
		if route == "/request" && way == "a key" {
			require.Equal(t, "202 ", code(t, again))
		} else {
			require.Equal(t, n.repeat, code(t, again), way)
		}
		s.put(s.path(), "duplicates", "acknowledge")
		require.Less(t, post(sameAsked).status, 300, way)
		for name, terms := range others {
			require.Equal(t, n.another, code(t, post(terms)), "%s: %s, acknowledged", way, name)
		}
		s.put(s.path(), "duplicates", "refuse")
	})
}

func scheduledTerms(t *testing.T, p *process) {
	onTerms(t, p, func(s *stage, way string) {
		n, at := named[way], in(time.Hour)
		post := func(terms []string) reply {
			return s.post(n.body, append(append([]string{"X-Broker-Scheduled-For", at}, n.headers...), terms...)...)
		}
		require.Equal(t, 201, post(askedFor).status)
		for name, terms := range others {
			require.Equal(t, n.another, code(t, post(terms)), "%s: %s", way, name)
		}
		require.Equal(t, n.repeat, code(t, post(sameAsked)), way)
	})
}

const (
	termsLine  = `{"MessageID":"order-1","Payload":"x","Consumers":["a","b"],"TTL":"1h","OrderingKey":"o"}`
	repeatLine = `{"MessageID":"order-1","Payload":"x","Consumers":["b","a"],"TTL":"60m","OrderingKey":"o"}`
)

var otherLines = []string{
	`{"MessageID":"order-1","Payload":"x"}`,
	`{"MessageID":"order-1","Payload":"x","Consumers":["b"],"TTL":"1h","OrderingKey":"o"}`,
	`{"MessageID":"order-1","Payload":"x","TTL":"1h","OrderingKey":"o"}`,
	`{"MessageID":"order-1","Payload":"x","Consumers":["a","b"],"TTL":"2h","OrderingKey":"o"}`,
	`{"MessageID":"order-1","Payload":"x","Consumers":["a","b"],"OrderingKey":"o"}`,
	`{"MessageID":"order-1","Payload":"x","Consumers":["a","b"],"TTL":"1h","OrderingKey":"o2"}`,
	`{"MessageID":"order-1","Payload":"x","Consumers":["a","b"],"TTL":"1h"}`,
}

func lineTerms(t *testing.T, p *process, duplicates string) {
	for _, together := range []bool{true, false} {
		s := p.stage(t, "a", "b", "c")
		s.put(s.path(), "duplicates", duplicates)
		lines := append(append([]string{termsLine}, otherLines...), repeatLine)
		got := s.lines(lines...)
		if !together {
			got = got[:0]
			s = p.stage(t, "a", "b", "c")
			s.put(s.path(), "duplicates", duplicates)
			for _, line := range lines {
				got = append(got, s.lines(line)...)
			}
		}
		require.Equal(t, 201, got[0].Status)
		for i, r := range got[1 : len(got)-1] {
			requireLine(t, r, 409, "message_id_conflict", "")
			require.NotEmpty(t, otherLines[i])
		}
		last := got[len(got)-1]
		if duplicates == "acknowledge" {
			requireLine(t, last, 200, "", got[0].Location)
		} else {
			requireLine(t, last, 409, "duplicate_message_id", got[0].Location)
		}
		require.Len(t, s.awaitQueued("a", 1), 1)
		require.Empty(t, s.queued("c", ""))
	}
}

func rowTerms(t *testing.T, p *process) {
	s := p.stage(t, "a", "b", "c")
	b := s.awaitBulk(s.bulk("application/x-ndjson", strings.Join(append(append([]string{termsLine}, otherLines...),
		repeatLine), "\n")), "DONE")
	require.Equal(t, [3]int64{1, int64(len(otherLines)), 1}, [3]int64{b.Published, b.Rejected, b.Duplicates}, "%+v", b)
	b = s.awaitBulk(
		s.bulk(
			"text/csv",
			"MessageID,Payload,Consumers,TTL,OrderingKey\norder-1,x,\"a,b\",1h,o\norder-1,x,\"a,b,c\",1h,o\norder-1,x,,,\n"),
		"DONE")
	require.Equal(t, [3]int64{0, 2, 1}, [3]int64{b.Published, b.Rejected, b.Duplicates}, "%+v", b)
	s.awaitQueued("a", 1)
}

// The policies of consumers and the names behind positions may change between a message and its repeat.
func askedTerms(t *testing.T, p *process) {
	s := p.stage(t, "a", "b")
	plain, named := []string{"X-Broker-Message-ID", "plain"}, []string{"X-Broker-Message-ID", "named",
		"X-Broker-Consumers", "a"}
	at, addressed := s.publish("x", plain...), s.publish("x", named...)
	s.put(s.path("/consumer/a"), "ttl", "90s")
	s.put(s.path("/consumer/b"), "ttl", "2h", "ordered", "true")
	requireProblem(t, s.post("x", plain...), 409, "duplicate_message_id")
	s.join("c")
	requireProblem(t, s.post("x", plain...), 409, "duplicate_message_id")
	r := s.do("DELETE", s.path("/consumer/a"), "")
	require.Equal(t, 204, r.status, r.body)
	s.join("a")
	for headers, location := range map[*[]string]string{&plain: at, &named: addressed} {
		r := s.post("x", *headers...)
		requireProblem(t, r, 409, "duplicate_message_id")
		require.Equal(t, location, r.header.Get("Location"))
	}
	requireConflict(t, s.post("x", "X-Broker-Message-ID", "named", "X-Broker-Consumers", "a,c"))
}

// What the journal takes is compared when it is stored: its receipt says what became of it.
func TestARepeatInTheJournalOfMySQLAsksForTheSameDelivery(t *testing.T) {
	parallel(t)
	w, link := journalWorld(t)
	p := w.start()
	p.journalled()
	p.put("/channel/c/consumer/a", "token", "a-token", "type", "pull")
	asked := []string{"X-Broker-Message-ID", "order-1", "X-Broker-Consumers", "k", "X-Broker-Message-TTL", "1h"}
	if r := p.broadcast("x", asked...); r.status == 202 { // the store was slow
		p.redeem(r.header.Get("Location"))
	} else {
		require.Equal(t, 201, r.status, r.body)
	}
	link.Set(proxy.Weather{StallUp: true, StallDown: true})
	same := p.later("x", asked...)
	other := p.later("x", "X-Broker-Message-ID", "order-1", "X-Broker-Consumers", "a", "X-Broker-Message-TTL", "1h")
	key := p.later("y", "Idempotency-Key", "key-1", "X-Broker-Message-TTL", "1h")
	reused := p.later("y", "Idempotency-Key", "key-1", "X-Broker-Message-TTL", "2h")
	link.Cut()
	link.Set(proxy.Weather{})
	require.Equal(t, "/channel/c/message/order-1", p.redeem(same))
	p.redeem(key)
	for receipt, reason := range map[string]string{other: "message_id_conflict", reused: "idempotency_key_reused"} {
		eventually(t, "the end of a receipt", func() bool { return p.do("GET", receipt, "").status == 410 })
		require.Contains(t, p.do("GET", receipt, "").body, reason)
	}
	p.requireEachOnce("x", "y")
}
