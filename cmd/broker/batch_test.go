package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

func parseLines(t testing.TB, body string) []apitype.BatchResult {
	t.Helper()
	var out []apitype.BatchResult
	for line := range strings.Lines(body) {
		var r apitype.BatchResult
		strictjson.Decode(t, []byte(line), &r)
		out = append(out, r)
	}
	return out
}

func (p *process) batch(lines ...string) []apitype.BatchResult {
	p.t.Helper()
	r := p.do("POST", "/channel/c/batch", strings.Join(lines, "\n"),
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Equal(p.t, 200, r.status, r.body)
	require.Equal(p.t, "application/x-ndjson", r.header.Get("Content-Type"))
	return parseLines(p.t, r.body)
}

func TestBatchPublishAnswersEachLineInOrderAndOneBadLineFailsAlone(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s := newSink(t, nil)
		p := w.start()
		p.sample("k=" + s.URL)
		got := p.batch(
			`{"Payload":"plain"}`,
			``,
			`{"MessageID":"m1","Priority":7,"ContentType":"text/x","Headers":{"x-tenant":"T1"},"Payload":"with \"escapes\"\n"}`,
			`{"Payload":`,
			`{"MessageID":"m1","Payload":"again"}`,
			`{"PayloadBase64":"/wAB"}`,
			`{"Payload":"p","Priority":1024}`,
			`{"Payload":"p","MessageID":"a b"}`,
			`{"Payload":"p","Priorty":1}`,
			`{"Payload":""}`,
			`not json`,
			`{"Payload":"p","Headers":{"X-Broker-Consumer-Token":"forged"}}`,
			`{"Payload":"p","Headers":{"X-Broker-Scheduled-For":"2030-01-01T00:00:00Z"}}`,
			`{"Payload":"\ud800"}`,
			`{"Payload":"p","Payload":"q"}`,
			`{"Payload":"p","Headers":{"a":"1","A":"2"}}`,
		)
		var status []int
		for _, r := range got {
			status = append(status, r.Status)
		}
		require.Equal(t, []int{201, 201, 400, 409, 201, 400, 400, 400, 201, 400, 400, 400, 400, 400, 400}, status)
		require.Equal(t, "invalid_metadata_headers", got[11].Code)
		require.Equal(t, "/channel/c/message/m1", got[1].Location)
		require.Equal(t, "message_id_conflict", got[3].Code)
		require.Empty(t, got[3].Location)
		require.Equal(t, "invalid_priority", got[5].Code)
		eventually(t, "four deliveries", func() bool { return s.count() == 4 })
		require.Equal(t, 1, s.times("plain"))
		require.Equal(t, 1, s.times("\xff\x00\x01"))
		require.Equal(t, 1, s.times(""))
		for _, r := range s.all() {
			if r.body == "with \"escapes\"\n" {
				require.Equal(t, "T1", r.header.Get("X-Tenant"))
				require.Equal(t, "k-token", r.header.Get("X-Broker-Consumer-Token"))
				require.Equal(t, "text/x", r.header.Get("Content-Type"))
				require.Equal(t, "7", r.header.Get("X-Broker-Message-Priority"))
				require.Equal(t, "m1", r.header.Get("X-Broker-Message-Id"))
			} else {
				require.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
			}
		}
	})
}

func TestBatchPublishChecksTokensAndMediaTypeFirst(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample()
	require.Equal(t, 415, p.do("POST", "/channel/c/batch", "{}", append([]string{"Content-Type", "application/json"},
		producerTokens...)...).status)
	require.Equal(t, 403, p.do("POST", "/channel/c/batch", "{}", "Content-Type", "application/x-ndjson").status)
	require.Equal(t, 404, p.do("POST", "/channel/x/batch", "{}", append([]string{"Content-Type", "application/x-ndjson"},
		producerTokens...)...).status)
	require.Empty(t, p.batch())
}

// A long stream is answered while it is still being sent, and far more of it
// than the broker would keep in memory goes through one request.
func TestBatchPublishStreams(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start("BROKER_MAX_BODY=64KiB")
	p.sample()
	reader, writer := io.Pipe()
	req, err := http.NewRequest("POST", p.base+"/channel/c/batch", reader)
	require.NoError(t, err)
	for i := 0; i < len(producerTokens); i += 2 {
		req.Header.Set(producerTokens[i], producerTokens[i+1])
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	line := `{"Payload":"` + strings.Repeat("x", 32<<10) + `"}` + "\n"
	long := `{"Payload":"` + strings.Repeat("x", 300<<10) + `"}` + "\n"
	first := make(chan struct{})
	go func() {
		_, _ = io.WriteString(writer, line)
		<-first // the first answer is here before the second line is sent
		_, _ = io.WriteString(writer, long)
		for range 2000 {
			_, _ = io.WriteString(writer, line)
		}
		_ = writer.Close()
	}()
	patient := &http.Client{Timeout: patience, Transport: client.Transport} // 64 MiB take a slow machine a while
	res, err := patient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
	n, refused := 0, 0
	scanner := bufio.NewScanner(res.Body)
	for ; scanner.Scan(); n++ {
		var r apitype.BatchResult
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &r))
		if n == 1 {
			require.Equal(t, 413, r.Status, "the long line")
			continue
		}
		if busy(r.Status, r.Code) { // a disk that stalls for seconds has some refused
			refused++
		} else {
			require.Equal(t, 201, r.Status, r.Detail)
		}
		if n == 0 {
			close(first)
		}
	}
	require.NoError(t, scanner.Err())
	require.Equal(t, 2002, n)
	require.Less(t, refused, n/2)
}

// A client that leaves half-way: what was answered is stored, the connection is
// not taken for another request, and the broker goes on.
func TestBatchPublishSurvivesAClientThatLeaves(t *testing.T) {
	s := newSink(t, nil)
	p := embeddedWorld(t).start()
	p.sample("k=" + s.URL)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	fmt.Fprintf(conn, "POST /channel/c/batch HTTP/1.1\r\nHost: x\r\nContent-Type: "+
		"application/x-ndjson\r\nContent-Length: 1000000\r\n"+
		"X-Broker-Channel-Token: c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: "+
		"p-token\r\n\r\n{\"Payload\":\"m-1\"}\n{\"Payl")
	answer := bufio.NewReader(conn)
	for {
		line, err := answer.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"Status":201`) {
			break
		}
	}
	require.NoError(t, conn.Close())
	eventually(t, "the line that was answered", func() bool { return s.times("m-1") == 1 })
	p.publish("m-2")
	eventually(t, "the next message", func() bool { return s.times("m-2") == 1 })
	require.Equal(t, 2, s.count())
}

// An answer that has an end says that the whole request was read.
func TestABatchThatBreaksOffHasNoEnd(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample()
	line := `{"Payload":"p"}` + "\n"
	whole := batchHead + "Transfer-Encoding: chunked\r\n\r\n" + chunk(line)
	for name, c := range map[string]struct {
		request string
		whole   bool
	}{
		"a length, at the end of a line": {batchHead + "Content-Length: 100\r\n\r\n" + line, false},
		"a length, inside a line":        {batchHead + "Content-Length: 100\r\n\r\n" + line + `{"Pay`, false},
		"between chunks":                 {whole, false},
		"inside a chunk":                 {whole + "10\r\n{", false},
		"before the last line break":     {whole + "0\r\n", false},
		"whole, in chunks":               {whole + "0\r\n\r\n", true},
		"whole, of a length":             {fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", batchHead, len(line), line), true},
	} {
		conn := p.dial()
		_, err := io.WriteString(conn, c.request)
		require.NoError(t, err)
		require.NoError(t, conn.CloseWrite())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		all, _ := io.ReadAll(conn) // to its end: on a busy machine the line may be late
		answer := string(all)
		require.Contains(t, answer, `{"Status":201,`, name)
		require.NotContains(t, answer, `"Status":400`, name)
		require.Equal(t, c.whole, strings.HasSuffix(answer, "\r\n0\r\n\r\n"), "%s: %s", name, answer)
		require.True(t, closed(conn), name)
	}
	old := rawExchange(t, p, strings.Replace(batchHead, "HTTP/1.1", "HTTP/1.0", 1)+
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(line), line))
	require.Regexp(t, `^HTTP/1\.1 505 `, old)
}

func (p *process) claim(consumer, query string) ([]apitype.ClaimedJob, http.Header) {
	p.t.Helper()
	r := p.do("POST", "/channel/c/consumer/"+consumer+"/claim?"+query, "", consumerTokens(consumer)...)
	require.Equal(p.t, 200, r.status, r.body)
	var page apitype.ClaimedJobs
	strictjson.Decode(p.t, []byte(r.body), &page)
	require.NotNil(p.t, page.Result)
	return page.Result, r.header
}

func (p *process) update(consumer string, updates ...map[string]any) []apitype.UpdateResult {
	p.t.Helper()
	body, err := json.Marshal(map[string]any{"Updates": updates})
	require.NoError(p.t, err)
	r := p.do("POST", "/channel/c/consumer/"+consumer+"/jobs", string(body), consumerTokens(consumer)...)
	require.Equal(p.t, 200, r.status, r.body)
	var page apitype.UpdateResults
	strictjson.Decode(p.t, []byte(r.body), &page)
	require.Len(p.t, page.Result, len(updates))
	return page.Result
}

func TestBatchClaimLeasesJobsByPriorityAndUpdateEndsThem(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(quick...).start()
		p.sample("k")
		none, _ := p.claim("k", "limit=10")
		require.Empty(t, none)
		for i := range 6 {
			p.publish(fmt.Sprint(i), "X-Broker-Message-Priority", fmt.Sprint(i%3))
		}
		var got []apitype.ClaimedJob
		eventually(t, "all six", func() bool { return len(p.queued("k")) == 6 })
		got, header := p.claim("k", "limit=4&timeout=60")
		require.Len(t, got, 4)
		require.Equal(t, "2", header.Get("X-Broker-Backlog"))
		require.Equal(t, []int{2, 2, 1, 1}, []int{got[0].Priority, got[1].Priority, got[2].Priority, got[3].Priority})
		require.Equal(t, "2", got[0].Message.Payload)
		require.Equal(t, 1, got[0].Attempt)
		require.Greater(t, time.Until(got[0].Deadline), 30*time.Second)

		done := p.update("k",
			map[string]any{"ID": got[0].ID, "Lease": got[0].Lease, "NextState": "DELIVERED"},
			map[string]any{"ID": got[1].ID, "Lease": "stale", "NextState": "DELIVERED"},
			map[string]any{"ID": got[2].ID, "Lease": got[2].Lease, "NextState": "DEAD"},
			map[string]any{"ID": got[3].ID, "Lease": got[3].Lease, "NextState": "QUEUED"},
			map[string]any{"ID": got[1].ID, "Lease": got[1].Lease, "NextState": "INFLIGHT", "IncrementalTimeout": 5},
			map[string]any{"ID": got[3].ID, "NextState": "QUEUED"},
			map[string]any{"ID": "nonsense", "NextState": "DELIVERED"},
			map[string]any{"ID": got[0].ID, "NextState": "FLYING"},
		)
		var status []int
		for _, d := range done {
			status = append(status, d.Status)
		}
		require.Equal(t, []int{202, 409, 202, 202, 400, 400, 404, 400}, status)
		require.Equal(t, "lease_lost", done[1].Code)
		require.Equal(t, 202, p.update("k", map[string]any{"ID": got[1].ID, "Lease": got[1].Lease, "NextState": "INFLIGHT",
			"IncrementalTimeout": 5})[0].Status)
		again, _ := p.claim("k", "limit=500")
		require.Len(t, again, 3, "the two that were left and the one given back")
		require.Contains(t, p.do("GET", "/channel/c/consumer/k/dlq", "").body, "declared dead by the consumer")
	})
}

func TestBatchClaimGivesBackAfterADelay(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample("k")
	p.publish("m")
	got, _ := p.claim("k", "wait=20s")
	require.Len(t, got, 1)
	require.Equal(t, 202, p.update("k", map[string]any{"ID": got[0].ID, "Lease": got[0].Lease, "NextState": "QUEUED",
		"Delay": 2})[0].Status)
	start := time.Now()
	none, _ := p.claim("k", "")
	require.Empty(t, none)
	got, _ = p.claim("k", "wait=20s")
	require.Len(t, got, 1)
	require.Equal(t, 1, got[0].Attempt, "giving back is no attempt")
	require.Greater(t, time.Since(start), 1500*time.Millisecond)
}

func TestFiftyWaitingClaimersNeverGetOneJobTwice(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		p.sample("k")
		var mu sync.Mutex
		seen := map[string]int{}
		const limit = 20
		var published atomic.Bool
		var refused atomic.Int64 // what such a claim had leased and could not give back is hidden for a while
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for {
					r, err := p.try("POST", fmt.Sprintf("/channel/c/consumer/k/claim?limit=%d&wait=3s&timeout=300", limit), "",
						consumerTokens("k")...)
					if err == nil && r.status == 503 { // a machine that has no time for us
						refused.Add(1)
						continue
					}
					if err != nil || r.status != 200 {
						t.Errorf("claim: %v %d %s", err, r.status, r.body)
						return
					}
					var page apitype.ClaimedJobs
					_ = json.Unmarshal([]byte(r.body), &page)
					if len(page.Result) == 0 && published.Load() {
						return
					}
					mu.Lock()
					for _, j := range page.Result {
						seen[j.ID]++
					}
					mu.Unlock()
				}
			})
		}
		taken, doubtful := 0, 0
		for taken < 1000 { // a disk that stalls for seconds has some refused
			for _, r := range p.batch(slices.Repeat([]string{`{"Payload":"p"}`}, 1000-taken)...) {
				if r.Status == 201 {
					taken++
				} else {
					require.Equal(t, 503, r.Status)
					doubtful++
				}
			}
		}
		published.Store(true)
		wg.Wait()
		require.GreaterOrEqual(t, len(seen), taken-limit*int(refused.Load()))
		require.LessOrEqual(t, len(seen), taken+doubtful)
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
	})
}

func TestBatchClaimOfAClientThatLeftKeepsNothing(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample("k")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	fmt.Fprintf(conn, "POST /channel/c/consumer/k/claim?wait=20s&timeout=3600 HTTP/1.1\r\nHost: x\r\nContent-Length: "+
		"0\r\nX-Broker-Channel-Token: c-token\r\nX-Broker-Consumer-Token: k-token\r\n\r\n")
	time.Sleep(200 * time.Millisecond) // it is waiting now
	require.NoError(t, conn.Close())
	p.publish("m")
	got, _ := p.claim("k", "wait=20s")
	require.Len(t, got, 1, "the job went to the one who is there")
}

func TestAWaitingClaimIsWokenByAPublishOnAnotherBrokerOverRealRedis(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	a := w.start()
	b := w.start()
	a.sample("k")
	eventually(t, "both to see each other", func() bool {
		return strings.Contains(a.do("GET", "/metrics", "").body, "penstock_brokers 2")
	})
	for i := range 5 {
		got := make(chan []apitype.ClaimedJob, 1)
		go func() {
			r, err := a.try("POST", "/channel/c/consumer/k/claim?wait=20s", "", consumerTokens("k")...)
			var page apitype.ClaimedJobs
			if err == nil {
				_ = json.Unmarshal([]byte(r.body), &page)
			}
			got <- page.Result
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		b.publish(fmt.Sprint(i))
		jobs := <-got
		t.Logf("woken after %v", time.Since(start))
		require.Len(t, jobs, 1)
		require.Equal(t, fmt.Sprint(i), jobs[0].Message.Payload)
		require.Equal(t, 202, a.update("k", map[string]any{"ID": jobs[0].ID, "Lease": jobs[0].Lease,
			"NextState": "DELIVERED"})[0].Status)
	}
}

func TestAWaitingClaimAnswersWhenItsBrokerStops(t *testing.T) {
	p := embeddedWorld(t).start()
	p.sample("k")
	done := make(chan int, 1)
	go func() {
		r, err := p.try("POST", "/channel/c/consumer/k/claim?wait=20s", "", consumerTokens("k")...)
		if err != nil {
			done <- 0
			return
		}
		done <- r.status
	}()
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	require.Zero(t, p.stop())
	require.Equal(t, 200, <-done)
	require.Less(t, time.Since(start), 15*time.Second)
}
