package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// A request that lives long goes by what its consumer, its channel and its producer are now, and not
// by what they were when it came.
func TestALongRequestGoesByWhatHasChangedSinceItCame(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true", fetchInside)
		for name, story := range map[string]func(*testing.T, *process){
			"a claim that waits is refused":         claimIsRefused,
			"a claim that waits takes new limits":   claimTakesLowerLimits,
			"a claim that waits takes a new lease":  claimTakesTheNewTimeout,
			"a lifted limit wakes a claim":          claimWakesAtLiftedLimits,
			"a batch ends":                          batchEnds,
			"a batch takes the channel's policy":    batchTakesThePolicy,
			"a body that comes slowly":              slowBodies,
			"a bulk is not taken to its end":        bulkIsRefused,
			"a request does not get its response":   requestGetsNoResponse,
			"a read that waits for responses":       readIsRefused,
			"what has not changed goes on as it is": unchangedGoesOn,
		} {
			t.Run(name, func(t *testing.T) { story(t, p) })
		}
	})
}

// Another broker hears of a change at its next poll at the latest.
func TestAChangeEndsLongRequestsOfOtherBrokersReal(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	a, b := w.start(), w.start()
	s := a.stage(t, "k")
	other := s.on(b)
	claim := other.hold("POST", other.path("/consumer/k/claim?wait=20"), consumerTokens("k"))
	open := a.stage(t).on(b).openBatch(`{"Payload":"first"}`)
	require.Equal(t, 201, open.line(`{"MessageID":"before","Payload":"x"}`).Status)
	s.put(s.path("/consumer/k"), "token", "new")
	s.put("/producer/p", "token", "new")
	t.Cleanup(func() { s.put("/producer/p", "token", "p-token") })
	requireProblem(t, <-claim, 403, "consumer_token_mismatch")
	for {
		r := open.line(`{"Payload":"x"}`)
		if r.Status == 403 { // it heard of the change
			require.Equal(t, "producer_token_mismatch", r.Code)
			break
		}
		require.Equal(t, 201, r.Status)
	}
	requireProblem(t, other.post("late"), 403, "producer_token_mismatch")
}

// hold sends a request that waits, and returns once it does.
func (s *stage) hold(method, path string, headers []string) <-chan reply {
	s.t.Helper()
	const held = `penstock_share_held{bound="waiters"}`
	before := s.gauge(s.t, held)
	answered := make(chan reply, 1)
	go func() {
		r, err := s.try(method, path, "", headers...)
		if err != nil {
			r.body = err.Error()
		}
		answered <- r
	}()
	eventually(s.t, "the request to wait", func() bool { return s.gauge(s.t, held) > before })
	return answered
}

// deletable is a stage whose channel and producer may change their tokens, or go.
func deletable(t *testing.T, p *process, consumers ...string) *stage {
	s := p.stage(t, consumers...)
	t.Cleanup(func() { s.put("/producer/p", "token", "p-token") })
	return s
}

func (s *stage) drop(path string) {
	s.t.Helper()
	r := s.do("DELETE", path, "", "X-Broker-Admin-Token", adminToken)
	require.Contains(s.t, []int{200, 204}, r.status, r.body)
}

func claimIsRefused(t *testing.T, p *process) {
	for name, c := range map[string]struct {
		change func(s *stage)
		status int
		code   string
	}{
		"consumer token": {func(s *stage) { s.put(s.path("/consumer/k"), "token", "new") }, 403, "consumer_token_mismatch"},
		"channel token":  {func(s *stage) { s.put(s.path(), "token", "new") }, 403, "channel_token_mismatch"},
		"type": {func(s *stage) {
			s.put(s.path("/consumer/k"), "type", "push", "callbackUrl", "http://127.0.0.1:1/")
		}, 412, "consumer_not_pull"},
		"deletion": {func(s *stage) { s.drop(s.path("/consumer/k")) }, 401, "consumer_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := p.stage(t, "k")
			var claims []<-chan reply
			for range 3 { // not only the one that looks for work
				claims = append(claims, s.hold("POST", s.path("/consumer/k/claim?wait=20"), consumerTokens("k")))
			}
			c.change(s)
			for _, claim := range claims {
				requireProblem(t, <-claim, c.status, c.code)
			}
		})
	}
}

func claimTakesLowerLimits(t *testing.T, p *process) {
	s := p.stage(t, "k")
	claim := s.hold("POST", s.path("/consumer/k/claim?wait=20&limit=20"), consumerTokens("k"))
	s.put(s.path("/consumer/k"), "concurrency", "1")
	lines := strings.Repeat(`{"Payload":"x"}`+"\n", 20)
	require.Equal(t, 200, s.do("POST", s.path("/batch"), lines, append([]string{"Content-Type", "application/x-ndjson"},
		producerTokens...)...).status)
	require.Len(t, claimedIn(t, <-claim).Result, 1)
}

// The length of a lease is that of the consumer when the job is leased.
func claimTakesTheNewTimeout(t *testing.T, p *process) {
	s := p.stage(t, "k")
	claim := s.hold("POST", s.path("/consumer/k/claim?wait=20"), consumerTokens("k"))
	s.put(s.path("/consumer/k"), "timeout", "10m")
	s.publish("x")
	got := claimedIn(t, <-claim).Result
	require.Len(t, got, 1)
	require.InDelta(t, (10 * time.Minute).Seconds(), time.Until(got[0].Deadline).Seconds(), 60)
}

func claimWakesAtLiftedLimits(t *testing.T, p *process) {
	for name, field := range map[string][2]string{"concurrency": {"concurrency", "1"}, "rate": {"rateLimit", "1/1h"}} {
		t.Run(name, func(t *testing.T) {
			s := p.stage(t, "k")
			s.put(s.path("/consumer/k"), field[0], field[1])
			s.publish("one")
			s.publish("two")
			require.Len(t, claimedIn(t, s.do("POST", s.path("/consumer/k/claim?timeout=600&wait=20&limit=1"), "",
				consumerTokens("k")...)).Result, 1)
			claim := s.hold("POST", s.path("/consumer/k/claim?wait=20"), consumerTokens("k"))
			s.put(s.path("/consumer/k"), field[0], "none")
			require.Len(t, claimedIn(t, <-claim).Result, 1)
		})
	}
}

func claimedIn(t *testing.T, r reply) (c apitype.ClaimedJobs) {
	t.Helper()
	require.Equal(t, 200, r.status, r.body)
	strictjson.Decode(t, []byte(r.body), &c)
	return c
}

// An openBatch is a batch whose client sends a line when it has the answer to the last one.
type openBatch struct {
	s    *stage
	w    *io.PipeWriter
	body *bufio.Reader
}

func (s *stage) openBatch(first string) *openBatch {
	s.t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequest("POST", s.base+s.path("/batch"), r)
	require.NoError(s.t, err)
	req.Header = headerOf(append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...))
	b := &openBatch{s: s, w: w}
	begun := make(chan *http.Response, 1)
	go func() {
		res, err := client.Do(req)
		if err != nil {
			_ = r.CloseWithError(err)
		}
		begun <- res
	}()
	_, err = io.WriteString(w, first+"\n")
	require.NoError(s.t, err)
	res := <-begun
	require.NotNil(s.t, res)
	s.t.Cleanup(func() { _ = res.Body.Close() })
	s.t.Cleanup(func() { _ = w.Close() })
	if res.StatusCode != 200 {
		text, _ := io.ReadAll(res.Body)
		require.Fail(s.t, "the batch is refused", "%s", text)
	}
	b.body = bufio.NewReader(res.Body)
	require.Equal(s.t, 201, b.answer().Status)
	return b
}

func (b *openBatch) line(text string) apitype.BatchResult {
	b.s.t.Helper()
	_, err := io.WriteString(b.w, text+"\n")
	require.NoError(b.s.t, err)
	return b.answer()
}

func (b *openBatch) answer() (r apitype.BatchResult) {
	b.s.t.Helper()
	line, err := b.body.ReadBytes('\n')
	require.NoError(b.s.t, err)
	strictjson.Decode(b.s.t, line, &r)
	return r
}

func batchEnds(t *testing.T, p *process) {
	for name, c := range map[string]struct {
		change func(s *stage)
		status int
		code   string
	}{
		"producer token": {func(s *stage) { s.put("/producer/p", "token", "new") }, 403, "producer_token_mismatch"},
		"channel token":  {func(s *stage) { s.put(s.path(), "token", "new") }, 403, "channel_token_mismatch"},
		"channel gone":   {func(s *stage) { s.drop(s.path()) }, 404, "channel_not_found"},
		"secret": {func(s *stage) {
			s.put("/producer/p", "publishSecret", "0123456789abcdef0123")
			s.t.Cleanup(func() { s.put("/producer/p", "publishSecret", "") })
		}, 403, "signature_unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletable(t, p)
			open := s.openBatch(`{"Payload":"first"}`)
			require.Equal(t, 201, open.line(`{"MessageID":"before","Payload":"x"}`).Status)
			c.change(s)
			last := open.line(`{"MessageID":"after","Payload":"x"}`)
			require.Equal(t, c.status, last.Status)
			require.Equal(t, c.code, last.Code)
			require.Contains(t, last.Detail, "since the batch began, which ends here")
			require.EqualValues(t, 2, *last.Taken, "the lines answered before are stored")
			_, err := io.WriteString(open.w, `{"Payload":"later"}`+"\n")
			require.NoError(t, err)
			require.NoError(t, open.w.Close())
			rest, err := io.ReadAll(open.body)
			require.NoError(t, err)
			require.Empty(t, rest, "no line after the last one")
			if c.code != "channel_not_found" {
				require.Equal(t, 200, s.do("GET", s.path("/message/before"), "").status)
				require.Equal(t, 404, s.do("GET", s.path("/message/after"), "").status)
			}
		})
	}
}

// What a line promises is what the channel promises when it is taken.
func batchTakesThePolicy(t *testing.T, p *process) {
	s := deletable(t, p)
	open := s.openBatch(`{"Payload":"first"}`)
	require.Equal(t, 409, func() int {
		require.Equal(t, 201, open.line(`{"MessageID":"m","Payload":"x"}`).Status)
		return open.line(`{"MessageID":"m","Payload":"x"}`).Status
	}())
	s.put(s.path(), "duplicates", "acknowledge")
	require.Equal(t, 200, open.line(`{"MessageID":"m","Payload":"x"}`).Status)
	s.put(s.path(), "ack", "journal", "latencyBudget", "4s")
	require.Equal(t, "durable", open.line(`{"Payload":"x"}`).Ack)
	s.put(s.path(), "ack", "durable")
	require.Empty(t, open.line(`{"Payload":"x"}`).Ack)
	s.join("late")
	require.Equal(t, 201, open.line(`{"Payload":"x","Consumers":["late"]}`).Status)
	s.awaitQueued("late", 1)
	require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
	require.Equal(t, "channel_paused", open.line(`{"Payload":"x"}`).Code)
	require.Equal(t, 200, s.do("POST", s.path("/resume"), "").status)
	require.Equal(t, 201, open.line(`{"Payload":"x"}`).Status)
}

// slow sends the head and the beginning of a request, and returns what sends the rest and reads the
// answer. The request is admitted when slow returns: its body holds memory.
func (s *stage) slow(method, path string, headers []string, body string) (rest func() reply) {
	s.t.Helper()
	const held = `penstock_share_held{bound="bodies"}`
	before := s.gauge(s.t, held)
	conn := s.dial()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n", method, path, len(body))
	for i := 0; i < len(headers); i += 2 {
		head += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	_, err := io.WriteString(conn, head+"\r\n"+body[:len(body)/2])
	require.NoError(s.t, err)
	eventually(s.t, "the body to begin", func() bool { return s.gauge(s.t, held) > before })
	return func() reply {
		_, err := io.WriteString(conn, body[len(body)/2:])
		require.NoError(s.t, err)
		return readReply(s.t, conn)
	}
}

func readReply(t testing.TB, conn net.Conn) reply {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return reply{res.StatusCode, res.Header, string(text)}
}

func slowBodies(t *testing.T, p *process) {
	t.Run("broadcast", func(t *testing.T) {
		s := deletable(t, p)
		rest := s.slow("POST", s.path("/broadcast"), append([]string{"X-Broker-Message-ID", "slow"}, producerTokens...),
			strings.Repeat("x", 20_000))
		s.put("/producer/p", "token", "new")
		requireProblem(t, rest(), 403, "producer_token_mismatch")
		require.Equal(t, 404, s.do("GET", s.path("/message/slow"), "").status)
	})
	t.Run("schedule", func(t *testing.T) {
		s := deletable(t, p)
		rest := s.slow("POST", s.path("/broadcast"),
			append([]string{"X-Broker-Scheduled-For", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
				producerTokens...), strings.Repeat("x", 20_000))
		s.put(s.path(), "token", "new")
		requireProblem(t, rest(), 403, "channel_token_mismatch")
	})
	t.Run("updates", func(t *testing.T) {
		s := p.stage(t, "k")
		job := s.newJob("k")
		lease := s.claim("k", job)
		body := `{"Updates":[{"ID":"` + job + `","Lease":"` + lease + `","NextState":"DEAD"}]}`
		rest := s.slow("POST", s.path("/consumer/k/jobs"), consumerTokens("k"), body)
		s.put(s.path("/consumer/k"), "token", "new")
		requireProblem(t, rest(), 403, "consumer_token_mismatch")
		s.put(s.path("/consumer/k"), "token", "k-token")
		require.Equal(t, "INFLIGHT", s.job("k", job).Status)
	})
	t.Run("response", func(t *testing.T) {
		s := p.stage(t, "k")
		s.put(s.path("/consumer/k"), "responses", "store")
		s.publish("x", "X-Broker-Message-ID", "asked")
		rest := s.slow("POST", s.path("/message/asked/response"), append([]string{"X-Broker-Consumer-ID", "k"},
			consumerTokens("k")...), strings.Repeat("x", 20_000))
		s.put(s.path("/consumer/k"), "token", "new")
		requireProblem(t, rest(), 403, "consumer_token_mismatch")
	})
}

func bulkIsRefused(t *testing.T, p *process) {
	for name, change := range map[string]func(s *stage) (status int, code string){
		"token": func(s *stage) (int, string) {
			s.put("/producer/p", "token", "new")
			return 403, "producer_token_mismatch"
		},
		"state": func(s *stage) (int, string) {
			require.Equal(s.t, 200, s.do("POST", s.path("/pause"), "").status)
			return 503, "channel_paused"
		},
	} {
		lines := strings.Repeat(`{"Payload":"`+strings.Repeat("x", 1000)+`"}`+"\n", 3000) // more than one chunk
		for kind, sent := range map[string]struct {
			body    string
			headers []string
		}{
			"lines":       {lines, []string{"Content-Type", "application/x-ndjson"}},
			"coded lines": {packed(lines), []string{"Content-Type", "application/x-ndjson", "Content-Encoding", "gzip"}},
			"form": {formOf(`{"Template":{"Payload":"{{n}}"}}`, "n\n"+strings.Repeat("row\n", 500_000)),
				[]string{"Content-Type", uploadType}},
		} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				s := deletable(t, p)
				rest := s.slow("POST", s.path("/bulk"), append(sent.headers, producerTokens...), sent.body)
				status, code := change(s)
				requireProblem(t, rest(), status, code)
				require.Contains(t, s.do("GET", s.path("/bulks"), "").body, `"Result":[]`)
			})
		}
	}
}

// The message of a request is stored, so the answer says where its responses will be. The response
// is for the new tokens.
func requestGetsNoResponse(t *testing.T, p *process) {
	s := deletable(t, p, "k")
	s.put(s.path("/consumer/k"), "responses", "store")
	request := s.hold("POST", s.path("/request"), append([]string{"X-Broker-Message-ID", "q", "Prefer", "wait=20"},
		producerTokens...))
	s.put("/producer/p", "token", "new")
	r := <-request
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, s.path("/message/q/responses"), r.header.Get("Location"))
	require.Empty(t, r.body)
}

func readIsRefused(t *testing.T, p *process) {
	for name, c := range map[string]struct {
		change func(s *stage)
		status int
		code   string
	}{
		"producer token": {func(s *stage) { s.put("/producer/p", "token", "new") }, 403, "producer_token_mismatch"},
		"channel token":  {func(s *stage) { s.put(s.path(), "token", "new") }, 403, "channel_token_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			s := deletable(t, p, "k")
			s.put(s.path("/consumer/k"), "responses", "store")
			s.publish("x", "X-Broker-Message-ID", "q")
			read := s.hold("GET", s.path("/message/q/responses?wait=20s"), producerTokens)
			c.change(s)
			requireProblem(t, <-read, c.status, c.code)
		})
	}
}

// A change that leaves a request its right ends nothing.
func unchangedGoesOn(t *testing.T, p *process) {
	s := p.stage(t, "k", "other")
	open := s.openBatch("{\"Payload\":\"x\",\"Consumers\":[\"other\"]}")
	claim := s.hold("POST", s.path("/consumer/k/claim?wait=20"), consumerTokens("k"))
	s.put(s.path("/consumer/other"), "token", "new")
	s.put(s.path("/consumer/k"), "token", "k-token", "maxRetries", "9")
	s.put("/producer/p", "token", "p-token")
	require.Equal(t, 201, open.line(`{"Payload":"x"}`).Status)
	require.NotEmpty(t, claimedIn(t, <-claim).Result)
}
