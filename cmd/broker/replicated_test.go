package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// replicatedWorld is a world whose store is a pair.
func replicatedWorld(t *testing.T, pair *servers.MySQLPair) *world {
	redis := servers.StartRedis(t)
	return &world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + pair.Primary.DSN(), "BROKER_REDIS_URL=" +
		redis.URL()}}
}

func TestAReplicatedChannelAnswers201OnlyWithASemiSynchronousMySQLReplica(t *testing.T) {
	parallel(t)
	pair := servers.StartMySQLPair(t)
	p := replicatedWorld(t, pair).start()
	p.sample("k")
	p.put("/channel/c", "ack", "replicated")
	r := p.broadcast("one")
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, "replicated", r.header.Get(ackHeader))
	require.Equal(t, 201, p.broadcast("two", "X-Broker-Message-ID", "two").status)
	batch := p.do("POST", "/channel/c/batch", `{"Payload":"line"}`,
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Equal(t, "replicated", batch.header.Get(ackHeader))
	require.Contains(t, batch.body, `{"Status":201,"Ack":"replicated"`)
	pair.Replica.Kill()
	eventually(t, "a refusal", func() bool {
		r := p.broadcast("alone", "X-Broker-Message-ID", "alone")
		return r.status == 503 && strings.Contains(r.body, `"not_replicated"`) && r.header.Get("Retry-After") != ""
	})
}

func TestTheEmbeddedStoreNeverConfirmsAReplica(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	p.sample("k")
	p.put("/channel/c", "ack", "replicated")
	r := p.broadcast("one")
	require.Equal(t, 503, r.status)
	require.Contains(t, r.body, `"not_replicated"`)
	for field, value := range map[string]string{"ack": "fast", "latencyBudget": "0"} {
		r := p.do("PUT", "/channel/c", field+"="+value, "Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, http.StatusBadRequest, r.status)
		require.Contains(t, r.body, field)
	}
	channel := p.do("GET", "/channel/c", "").json(t)
	require.Equal(t, "replicated", channel["Ack"])
	require.Equal(t, "65ms", channel["LatencyBudget"])
	p.put("/channel/c", "ack", "")
	r = p.broadcast("durable again")
	require.Equal(t, 201, r.status, r.body)
	require.Equal(t, "durable", r.header.Get(ackHeader))
	at := time.Now().Add(time.Hour).Format(time.RFC3339)
	require.Equal(t, "durable", p.broadcast("later", "X-Broker-Scheduled-For", at).header.Get(ackHeader))
}

// A way is a request that says whether a message is stored.
type way struct {
	name   string
	send   func() reply
	stored func(t *testing.T, r reply) // requires the answer to a repeat of what is stored
}

// waysIn are the ways into the channels c, ack and own, each with an identity.
func waysIn(p *process) []way {
	post := func(path, body string, headers ...string) func() reply {
		return func() reply {
			return p.do("POST", path, body, append(append([]string{}, producerTokens...), headers...)...)
		}
	}
	status := func(want int) func(t *testing.T, r reply) {
		return func(t *testing.T, r reply) {
			require.Equal(t, want, r.status, r.body)
			require.Equal(t, "replicated", r.header.Get(ackHeader))
		}
	}
	line := func(want string) func(t *testing.T, r reply) {
		return func(t *testing.T, r reply) { require.Contains(t, r.body, want) }
	}
	const ndjson, ack = "application/x-ndjson", `"Ack":"replicated","MessageID":`
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	return []way{
		{"a message with an ID", post("/channel/c/broadcast", "x", "X-Broker-Message-ID", "id"), status(409)},
		{"a message with an Idempotency-Key", post("/channel/c/broadcast", "x", "Idempotency-Key", "key"), status(201)},
		{"an event", post("/channel/c/broadcast", `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, "Content-Type",
			"application/cloudevents+json"), status(409)},
		{"a message whose repeat is acknowledged", post("/channel/ack/broadcast", "x", "X-Broker-Message-ID", "id"),
			status(200)},
		{"a request", post("/channel/c/request", "x", "X-Broker-Message-ID", "request", "Prefer", "wait=0"), status(409)},
		{"a request with an Idempotency-Key", post("/channel/c/request", "x", "Idempotency-Key", "request", "Prefer",
			"wait=0"), status(202)},
		{"a schedule", post("/channel/c/broadcast", "x", "X-Broker-Message-ID", "later", "X-Broker-Scheduled-For", at),
			status(409)},
		{"a schedule with an Idempotency-Key", post("/channel/c/broadcast", "x", "Idempotency-Key", "later",
			"X-Broker-Scheduled-For", at), status(201)},
		{"a change of the schedule moved", func() reply {
			return p.do("PUT", "/channel/c/scheduled-message/moved", "y", append([]string{"X-Broker-Delay", "2h"},
				producerTokens...)...)
		}, status(200)},
		{"a line", post("/channel/c/batch", `{"MessageID":"line","Payload":"x"}`, "Content-Type", ndjson),
			line(ack + `"line"`)},
		{"a line that is acknowledged", post("/channel/ack/batch", `{"MessageID":"line","Payload":"x"}`, "Content-Type",
			ndjson), line(`{"Status":200,` + ack + `"line"`)},
		{"an event of a batch", post("/channel/c/batch", `[{"specversion":"1.0","id":"2","source":"/s","type":"t"}]`,
			"Content-Type", "application/cloudevents-batch+json"), line(ack)},
		{"a line with a time", post("/channel/c/batch", `{"MessageID":"lines","Payload":"x","ScheduledFor":"`+at+`"}`,
			"Content-Type", ndjson), line(ack + `"lines"`)},
	}
}

// requireUnproved requires that no answer says that the message is stored.
func requireUnproved(t *testing.T, w way, r reply) {
	t.Helper()
	require.NotContains(t, r.body, `"Status":20`, w.name)
	require.NotContains(t, r.body, `"Status":409`, w.name)
	if !strings.HasPrefix(r.body, `{"Status":503`) {
		require.Equal(t, 503, r.status, w.name+": "+r.body)
	}
}

// The replica stands still. Each first request waits for it in vain, and its message is committed and
// visible. The repeats must not take that for a proof.
func TestARepeatIsNotAcknowledgedWhileNoReplicaOfMySQLHasTheMessageWhichStalls(t *testing.T) {
	parallel(t)
	pair := servers.StartMySQLPair(t)
	pair.WaitAfterCommit()
	p := replicatedWorld(t, pair).start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "responses", "store")
	p.put("/channel/c", "ack", "replicated")
	p.put("/channel/ack", "ack", "replicated", "duplicates", "acknowledge", "token", "c-token")
	require.Equal(t, 201, p.broadcast("x", "X-Broker-Message-ID", "moved", "X-Broker-Delay", "1h").status)
	require.Equal(t, 201, p.broadcast("before").status)
	ways := waysIn(p)
	all := func() []reply {
		replies := make([]reply, len(ways))
		var sent sync.WaitGroup
		for i, w := range ways {
			sent.Go(func() { replies[i] = w.send() })
		}
		sent.Wait()
		return replies
	}
	pair.Replica.Pause()
	for range 3 {
		for i, r := range all() {
			requireUnproved(t, ways[i], r)
		}
	}
	pair.Replica.Resume()
	eventually(t, "the replica", func() bool { return p.broadcast("after").status == 201 })
	all()
	for i, r := range all() {
		t.Log(ways[i].name, r.status, r.body)
		ways[i].stored(t, r)
	}
}

// The primary has given up waiting and commits alone.
func TestNothingIsAcknowledgedAsReplicatedByAMySQLThatLostItsReplica(t *testing.T) {
	parallel(t)
	pair := servers.StartMySQLPair(t)
	pair.GiveUpAfter(100 * time.Millisecond)
	p := replicatedWorld(t, pair).start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "responses", "store")
	p.put("/channel/c", "ack", "replicated")
	p.put("/channel/ack", "ack", "replicated", "duplicates", "acknowledge", "token", "c-token")
	require.Equal(t, 201, p.broadcast("x", "X-Broker-Message-ID", "moved", "X-Broker-Delay", "1h").status)
	bulk := func() reply {
		return p.do("POST", "/channel/c/bulk", `{"Payload":"x"}`, append([]string{"Content-Type", "application/x-ndjson"},
			producerTokens...)...)
	}
	r := bulk()
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, "replicated", r.header.Get(ackHeader))
	pair.Replica.Kill()
	eventually(t, "the primary to go on alone", func() bool {
		return strings.Contains(p.broadcast("alone").body, `"not_replicated"`)
	})
	for _, w := range append(waysIn(p), way{name: "a bulk", send: bulk}) {
		for range 2 {
			r := w.send()
			requireUnproved(t, w, r)
			require.Contains(t, r.body, `"not_replicated"`, w.name)
		}
	}
	require.Len(t, p.do("GET", "/channel/c/bulks", "", producerTokens...).json(t)["Result"], 1,
		"a bulk is not even stored")
	p.put("/channel/c", "ack", "")
	require.Equal(t, 201, p.broadcast("durable again").status)
}

// A channel becomes replicated while a message of it waits in the journal. The receipt leads to the
// message once a second server has it, and not before, on whatever broker.
func TestAReceiptOfAJournalIsRedeemedOnlyWhenAReplicaOfMySQLWhichStallsHasTheMessage(t *testing.T) {
	parallel(t)
	pair := servers.StartMySQLPair(t)
	pair.GiveUpAfter(100 * time.Millisecond)
	w := replicatedWorld(t, pair)
	p, other := w.start("BROKER_DATA_DIR="+t.TempDir()), w.start("BROKER_DATA_DIR="+t.TempDir())
	p.journalled()
	pair.Replica.Pause()
	eventually(t, "the primary to go on alone", func() bool { return p.broadcast("alone").status == 201 })
	pair.Primary.Pause()
	first, second := p.later("first"), p.later("second", "X-Broker-Message-ID", "second")
	pair.Primary.Resume()
	p.redeem(first) // what a 202 of ack=journal promises is kept
	p.redeem(second)
	p.put("/channel/c", "ack", "replicated")
	for _, receipt := range []string{first, second} {
		for _, at := range []*process{p, other} {
			eventually(t, "a refusal", func() bool { return at.do("GET", receipt, "").status == 503 })
			for range 5 {
				r := at.do("GET", receipt, "")
				requireProblem(t, r, 503, "not_replicated")
				require.Empty(t, r.header.Get("Location"))
				require.NotEmpty(t, r.header.Get("Retry-After"))
			}
		}
	}
	pair.Replica.Resume()
	for _, receipt := range []string{first, second} {
		for _, at := range []*process{p, other} {
			eventually(t, "the proof", func() bool { return at.do("GET", receipt, "").status == 303 })
		}
	}
	p.put("/channel/c", "ack", "journal")
	pair.Replica.Pause()
	eventually(t, "the promise of ack=journal, which is one server", func() bool {
		return other.do("GET", first, "").status == 303
	})
}
