package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func TestBulks(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(fetchInside, "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=2")
		for name, story := range map[string]func(*testing.T, *process){
			"lines":                       bulkLines,
			"records":                     bulkRecords,
			"what cannot be a bulk":       badBulks,
			"a file with a template":      bulkFile,
			"files that cannot be":        badFiles,
			"a file that breaks off":      brokenFile,
			"pause, resume and cancel":    bulkPaused,
			"a rate":                      bulkRate,
			"many bad rows":               bulkBadRows,
			"rows for later":              bulkLater,
			"rows with delays":            bulkDelays,
			"a channel that is paused":    bulkInPause,
			"lines of a file":             bulkFileLines,
			"a body that does not arrive": brokenBulk,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// bulk posts a body and returns the location of the bulk.
func (s *stage) bulk(contentType, body string, headers ...string) (location string) {
	s.t.Helper()
	r := s.patientBulk(contentType, body, headers...)
	require.Equal(s.t, 202, r.status, r.body)
	require.Contains(s.t, r.header.Get("Location"), s.path("/bulk/"))
	return r.header.Get("Location")
}

func (s *stage) tryBulk(contentType, body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", s.path("/bulk"), body, append(append([]string{"Content-Type", contentType}, producerTokens...),
		headers...)...)
}

func (s *stage) bulkAt(location string) (b apitype.Bulk) {
	s.t.Helper()
	r := s.do("GET", location, "")
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &b))
	return b
}

// awaitBulk waits for a state and returns the bulk.
func (s *stage) awaitBulk(location, state string) (b apitype.Bulk) {
	s.t.Helper()
	eventually(s.t, "the bulk to be "+state, func() bool {
		b = s.bulkAt(location)
		return b.State == state
	})
	return b
}

func bulkLines(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	s.publish("same", "X-Broker-Message-ID", "a", "Content-Type", "text/plain")
	s.publish("other", "X-Broker-Message-ID", "b")
	at := s.bulk("application/x-ndjson", strings.Join([]string{
		"\xEF\xBB\xBF" + `{"Payload":"1","Priority":7,"Headers":{"X-Tenant":"T"}}`,
		``,
		`{"Payload":"2"}` + "\r",
		`{"Payload":`,
		`{"MessageID":"a","Payload":"same","ContentType":"text/plain"}`,
		`{"MessageID":"b","Payload":"mine"}`,
		`{"MessageID":"c","Payload":"3"}`,
		`{"MessageID":"c","Payload":"3"}`,
		`{"PayloadBase64":"/wAB"}`,
	}, "\n"))
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [4]int64{8, 4, 2, 2}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates})
	require.Len(t, b.BadRows, 2)
	require.Equal(t, int64(3), b.BadRows[0].Row)
	require.Equal(t, int64(5), b.BadRows[1].Row)
	require.Contains(t, b.BadRows[1].Reason, "ID")
	require.Equal(t, "ndjson", b.Format)
	require.Equal(t, "p", b.ProducedBy)
	requireOnce(t, sink, "same", "other", "1", "2", "3", "\xff\x00\x01")
	eventually(t, "the count", func() bool { b = s.bulkAt(at); return b.Delivered == 4 })
	require.Zero(t, b.Open)
	require.False(t, b.Counting)
	for _, r := range sink.all() {
		if r.body == "1" {
			require.Equal(t, "T", r.header.Get("X-Tenant"))
			require.Equal(t, "7", r.header.Get("X-Broker-Message-Priority"))
		}
	}
	r := s.do("GET", s.path("/bulks"), "")
	require.Contains(t, r.body, `"`+at+`"`)
}

func bulkRecords(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	at := s.bulk("text/csv; charset=utf-8", "\xEF\xBB\xBFMessageID,Payload,Priority,ContentType,Header:X-Tenant\r\n"+
		"a,plain,,,\r\n"+
		"b,\"a \"\"quoted\"\", cell\",3,text/plain,T\r\n"+
		"\r\n"+
		"c,\"two\r\nlines\",,,\r\n"+
		"d,too,few\r\n"+
		"e,bad priority,x,,\r\n"+
		"f,ba\"re,,,\r\n"+
		",,,,\r\n"+
		"a,plain,,,\r\n"+
		"g,last,,,", "X-Broker-Message-Priority", "2")
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [4]int64{9, 5, 3, 1}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates}, "%+v", b)
	require.Equal(t, []int64{4, 5, 6}, []int64{b.BadRows[0].Row, b.BadRows[1].Row, b.BadRows[2].Row})
	require.Contains(t, b.BadRows[0].Reason, "3 cells")
	require.Contains(t, b.BadRows[1].Reason, "priority")
	requireOnce(t, sink, "plain", `a "quoted", cell`, "two\r\nlines", "", "last")
	for _, r := range sink.all() {
		want := "2"
		if r.body == `a "quoted", cell` {
			want = "3"
			require.Equal(t, "T", r.header.Get("X-Tenant"))
			require.Equal(t, "text/plain", r.header.Get("Content-Type"))
		}
		require.Equal(t, want, r.header.Get("X-Broker-Message-Priority"), r.body)
	}
}

func badBulks(t *testing.T, p *process) {
	s := p.stage(t)
	for _, c := range []struct {
		contentType, body string
		status            int
		code              string
	}{
		{"application/xml", "<a/>", 415, "unsupported_media_type"},
		{"text/csv; charset=latin1", "Payload\na", 415, "unsupported_media_type"},
		{"text/csv; header=absent", "a", 415, "unsupported_media_type"},
		{"", "a", 415, "unsupported_media_type"},
		{"text/csv", "", 400, "invalid_columns"},
		{"text/csv", "\n\n", 400, "invalid_columns"},
		{"text/csv", "Payload,Nope\na,b\n", 400, "invalid_columns"},
		{"text/csv", "Payload,Payload\na,b\n", 400, "invalid_columns"},
		{"text/csv", "Payload,\na,b\n", 400, "invalid_columns"},
		{"text/csv", "MessageID\na\n", 400, "invalid_columns"},
		{"text/csv", "\"Payload\na\n", 400, "invalid_columns"},
		{"text/csv", strings.Repeat("x", 300<<10), 400, "invalid_columns"},
		{"application/json", `{"FileURL":`, 400, "invalid_json"},
		{"application/json", `[]`, 400, "invalid_json"},
		{"application/json", `{} {}`, 400, "invalid_json"},
		{"application/json", `{"FileUrl2":"http://x.example/"}`, 400, "invalid_json"},
		{"application/json", `{"FileURL":7}`, 400, "invalid_json"},
		{"application/json", `{}`, 400, "invalid_file_url"},
		{"application/json", `{"FileURL":"ftp://x.example/","Format":"csv"}`, 400, "invalid_file_url"},
		{"application/json", `{"FileURL":"http://169.254.169.254/","Format":"csv"}`, 400, "invalid_file_url"},
		{"application/json", `{"FileURL":"http://x.example/"}`, 400, "invalid_format"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"xml"}`, 400, "invalid_format"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"csv","Rate":"fast"}`, 400, "invalid_rate"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"csv","Template":{"Payload":"{{a"}}`, 400,
			"invalid_template"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"csv","Template":{"Payload":"{{}}"}}`, 400,
			"invalid_template"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"csv","Template":{"Body":"x"}}`, 400, "invalid_json"},
		{"application/json", `{"FileURL":"http://x.example/","Format":"csv","Template":{"Payload":"x","Priority":2000}}`, 400,
			"invalid_priority"},
	} {
		r := s.tryBulk(c.contentType, c.body)
		require.Equal(t, c.status, r.status, "%s %.100s: %s", c.contentType, c.body, r.body)
		requireProblem(t, r, c.status, c.code)
	}
	require.Contains(t, s.do("GET", s.path("/bulks"), "").body, `"Result":[]`, "nothing was stored")
	requireProblem(t, s.do("GET", s.path("/bulk/nope"), ""), 404, "bulk_not_found")
	requireProblem(t, s.do("POST", s.path("/bulk/nope/cancel"), ""), 404, "bulk_not_found")
	requireProblem(t, s.tryBulk("text/csv", "Payload\na", "X-Broker-Message-Priority", "x"), 400, "invalid_priority")
	require.Equal(t, 403, s.do("POST", s.path("/bulk"), "Payload\na", "Content-Type", "text/csv").status)
}

// file serves content under a URL.
func file(t *testing.T, handler http.HandlerFunc) string {
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) { handler(w, r) }) +
		"/file?secret=x"
}

func bulkFile(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "id,name\n1,Ann\n2,\"<b>\"\"Bob\"\"</b>\"\n3,\n")
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+
		`","Format":"csv","Template":{"Payload":"Hello {{name}}: {{json name}}","ContentType":"text/plain","Headers":{"X-Name":"n-{{id}}"},"Priority":"{{id}}","MessageID":"m-{{id}}"}}`)
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [3]int64{3, 3, 0}, [3]int64{b.Total, b.Published, b.Rejected}, "%+v", b.BadRows)
	require.NotContains(t, b.FileURL, "secret")
	requireOnce(t, sink, `Hello Ann: "Ann"`, `Hello <b>"Bob"</b>: "<b>\"Bob\"</b>"`, `Hello : ""`)
	m := s.message(s.path("/message/m-2"))
	require.Equal(t, 2, m.Priority)
	require.Equal(t, "n-2", m.Headers["X-Name"])
	r := s.tryBulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Template":{"Payload":"{{nobody}}"}}`)
	requireProblem(t, r, 400, "invalid_template")
}

func bulkFileLines(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":1,"name":"A\u00e9","tags":["x"]}`+"\n"+`{"id":2}`+"\n"+
			`{"id":3,"name":null,"tags":null}`)
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+
		`","Format":"ndjson","Template":{"Payload":"{{id}} {{name}} {{json name}} {{json tags}}"}}`)
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [3]int64{3, 2, 1}, [3]int64{b.Total, b.Published, b.Rejected})
	require.Contains(t, b.BadRows[0].Reason, `"name"`)
	requireOnce(t, sink, `1 Aé "Aé" ["x"]`, `3  "" ""`)
}

func badFiles(t *testing.T, p *process) {
	s := p.stage(t)
	var bomb strings.Builder
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 10<<20))
	require.NoError(t, z.Close())
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"missing": {http.NotFound, "404"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
			"redirect"},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "compress")
			_, _ = io.WriteString(w, bomb.String())
		}, "Content-Encoding"},
		"zipped":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, bomb.String()) }, ""},
		"empty":         {func(http.ResponseWriter, *http.Request) {}, "empty"},
		"other columns": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a,b\n1,2\n") }, "column"},
		"failing":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "Tried 3 times"},
	} {
		at := s.bulk("application/json", `{"FileURL":"`+file(t, c.handler)+`","Format":"csv"}`)
		b := s.awaitBulk(at, "FAILED")
		require.Contains(t, b.Reason, c.reason, name)
		require.NotContains(t, b.Reason, "secret", name)
		require.Zero(t, b.Published)
	}
	require.Zero(t, s.counts().Counts.Dispatched.Count, "nothing is published")
	at := s.bulk("application/json", `{"FileURL":"http://127.0.0.1:1/","Format":"csv"}`)
	require.Contains(t, s.awaitBulk(at, "FAILED").Reason, "Tried 3 times")
	requireProblem(t, s.do("POST", at+"/resume", ""), 409, "bulk_over")
}

func brokenFile(t *testing.T, p *process) {
	s := p.stage(t, "k")
	var asked atomic.Int32
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		body := "Payload\n" + strings.Repeat("first\n", 100_000)
		if asked.Add(1) > 1 {
			body = "Payload\n" + strings.Repeat("second\n", 1000)
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if asked.Load() == 1 {
			body = body[:len(body)-1000]
		}
		_, _ = io.WriteString(w, body)
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+`","Format":"csv"}`)
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, int64(1000), b.Published, "of the second try only")
	require.Equal(t, int32(2), asked.Load())
	require.Empty(t, b.Reason)
	for _, j := range s.awaitQueued("k", 100) {
		require.NotEmpty(t, j.ID)
	}
}

func bulkPaused(t *testing.T, p *process) {
	s := p.stage(t, "k")
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Payload\n"+strings.Repeat("x\n", 2000))
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Rate":"100/1s"}`)
	eventually(t, "the first rows", func() bool { return s.bulkAt(at).Published > 0 })
	for range 2 {
		r := s.do("POST", at+"/pause", "")
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, `"State":"PAUSED"`)
	}
	first := s.bulkAt(at)
	require.Nil(t, first.EstimatedEnd)
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, first.Published, s.bulkAt(at).Published)
	for range 2 {
		r := s.do("POST", at+"/resume", "")
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, `"State":"RUNNING"`)
	}
	eventually(t, "more rows", func() bool { return s.bulkAt(at).Published > first.Published })
	for range 2 {
		r := s.do("POST", at+"/cancel", "")
		require.Equal(t, 200, r.status, r.body)
		require.Contains(t, r.body, `"State":"CANCELLED"`)
	}
	last := s.bulkAt(at)
	time.Sleep(1200 * time.Millisecond)
	require.Equal(t, last.Published, s.bulkAt(at).Published)
	require.Equal(t, last.Published, last.Open)
	require.Less(t, last.Published, last.Total)
	requireProblem(t, s.do("POST", at+"/pause", ""), 409, "bulk_over")
}

func bulkRate(t *testing.T, p *process) {
	s := p.stage(t)
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Payload\n"+strings.Repeat("x\n", 150))
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Rate":"50/1s"}`)
	eventually(t, "the first rows", func() bool { return s.bulkAt(at).Published > 0 })
	began := time.Now()
	b := s.awaitBulk(at, "DONE")
	require.Greater(t, time.Since(began), 2*time.Second)
	require.Equal(t, "50/1s", b.Rate)
	require.Equal(t, int64(150), b.Published)
}

func bulkBadRows(t *testing.T, p *process) {
	s := p.stage(t)
	at := s.bulk("text/csv", "Payload,Priority\n"+strings.Repeat("x,y\n", 2500)+"x,1\n")
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [3]int64{2501, 1, 2500}, [3]int64{b.Total, b.Published, b.Rejected})
	require.Len(t, b.BadRows, 100)
	require.True(t, strings.HasPrefix(b.BadRowsURL, at))
	r := s.do("GET", b.BadRowsURL, "")
	require.Equal(t, 200, r.status)
	var all apitype.BadRows
	require.NoError(t, json.Unmarshal([]byte(r.body), &all))
	require.Len(t, all.Result, 2500)
	require.Equal(t, int64(2500), all.Result[2499].Row)
	empty := s.bulk("text/csv", "Payload\n")
	require.Equal(t, `{"Result":[]}`, strings.TrimSpace(s.do("GET", s.awaitBulk(empty, "DONE").BadRowsURL, "").body))
	long := s.bulk("application/x-ndjson", `{"Payload":"`+strings.Repeat("x", 10<<20)+`"}`+"\n"+`{"Payload":"y"}`)
	b = s.awaitBulk(long, "DONE")
	require.Equal(t, [3]int64{2, 1, 1}, [3]int64{b.Total, b.Published, b.Rejected})
	require.Contains(t, b.BadRows[0].Reason, "longer than")
}

// A producer sees and changes its own bulks only.
func TestBulksBelongToTheirProducer(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with(fetchInside, "BROKER_OPEN_MANAGEMENT=false").start()
	admin := []string{"X-Broker-Admin-Token", adminToken}
	p.do("PUT", "/channel/c", "token=c-token", append(admin, "Content-Type", formType)...)
	s := &stage{process: p, channel: "c"}
	tokens := func(id string) []string {
		p.do("PUT", "/producer/"+id, "token="+id, append(admin, "Content-Type", formType)...)
		return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", id, "X-Broker-Producer-Token", id}
	}
	one, two := tokens("one"), tokens("two")
	r := s.do("POST", s.path("/bulk"), "Payload\nx\n", append([]string{"Content-Type", "text/csv"}, one...)...)
	require.Equal(t, 202, r.status, r.body)
	at := r.header.Get("Location")
	for _, path := range []string{at, at + "/bad-rows"} {
		require.Equal(t, 200, s.do("GET", path, "", one...).status)
		require.Equal(t, 200, s.do("GET", path, "", admin...).status)
		require.Equal(t, 404, s.do("GET", path, "", two...).status)
		require.Equal(t, 401, s.do("GET", path, "").status)
	}
	for _, action := range []string{"pause", "resume", "cancel"} {
		require.Equal(t, 404, s.do("POST", at+"/"+action, "", two...).status)
		require.Equal(t, 401, s.do("POST", at+"/"+action, "").status)
	}
	require.Contains(t, s.do("GET", s.path("/bulks"), "", one...).body, at)
	require.NotContains(t, s.do("GET", s.path("/bulks"), "", two...).body, at)
	requireProblem(t, s.do("POST", s.path("/bulk"), "Payload\nx", append([]string{"Content-Type", "text/csv"},
		append(one[:4:4], "X-Broker-Producer-Token", "no")...)...), 403, "producer_token_mismatch")
}

func bulkLater(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	due := in(lead)
	at := s.bulk("text/csv", "MessageID,Payload,ScheduledFor\na,later,"+due+
		"\nb,now,\nc,past,2001-01-01T00:00:00Z\na,later,"+due+"\na,other,"+due+"\n")
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [4]int64{5, 2, 2, 1}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates}, "%+v", b.BadRows)
	require.Equal(t, "later", s.scheduled(s.path("/scheduled-message/a")).Payload)
	requireOnce(t, sink, "now", "later")
}

// A delay of a row counts from when the bulk came, and the row's own times count instead of those of the request.
func bulkDelays(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	began := time.Now().Add(-time.Second) // of the store: its clock is another one
	at := s.bulk("text/csv", "MessageID,Payload,Delay\na,later,1h\nb,soon,1\nc,past,-1s\na,later,1h\na,later,3599\n")
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [4]int64{5, 2, 2, 1}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates}, "%+v", b.BadRows)
	require.WithinRange(t, s.scheduled(s.path("/scheduled-message/a")).DispatchSchedule.Time, began.Add(time.Hour),
		time.Now().Add(time.Hour+time.Second))

	when := in(2 * time.Hour)
	at = s.bulk("application/x-ndjson", `{"Payload":"default","MessageID":"d"}`+"\n"+
		`{"Payload":"own","MessageID":"e","ScheduledFor":"`+when+`"}`+"\n"+`{"Payload":"at once","Delay":"0"}`+"\n",
		"X-Broker-Delay", "90m")
	require.Equal(t, int64(3), s.awaitBulk(at, "DONE").Published)
	require.WithinRange(t, s.scheduled(s.path("/scheduled-message/d")).DispatchSchedule.Time, began.Add(90*time.Minute),
		time.Now().Add(90*time.Minute+time.Second))
	require.Equal(t, when[:19], s.scheduled(s.path("/scheduled-message/e")).DispatchSchedule.In(
		time.Now().Location()).Format(time.RFC3339Nano)[:19])
	requireProblem(t, s.tryBulk("text/csv", "Payload\nx", "X-Broker-Delay", "soon"), 400, "invalid_schedule")

	url := file(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "n,wait\n1,3600\n") })
	at = s.bulk("application/json", `{"FileURL":"`+url+
		`","Format":"csv","Template":{"Payload":"t","MessageID":"t-{{n}}","Delay":"{{wait}}"}}`)
	require.Equal(t, int64(1), s.awaitBulk(at, "DONE").Published)
	require.WithinRange(t, s.scheduled(s.path("/scheduled-message/t-1")).DispatchSchedule.Time, began.Add(time.Hour),
		time.Now().Add(time.Hour+time.Second))
	requireProblem(t, s.tryBulk("application/json", `{"FileURL":"`+url+
		`","Format":"csv","Template":{"Payload":"t","Delay":"soon"}}`), 400, "invalid_schedule")
	requireOnce(t, sink, "soon", "at once")
}

func bulkInPause(t *testing.T, p *process) {
	s := p.stage(t)
	url := file(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Payload\n"+strings.Repeat("x\n", 200))
	})
	at := s.bulk("application/json", `{"FileURL":"`+url+`","Format":"csv","Rate":"50/1s"}`)
	require.Equal(t, 200, s.do("POST", s.path("/pause"), "").status)
	requireProblem(t, s.tryBulk("text/csv", "Payload\nx"), 503, "channel_paused")
	time.Sleep(1200 * time.Millisecond)
	before := s.bulkAt(at).Published
	time.Sleep(1200 * time.Millisecond)
	require.Equal(t, before, s.bulkAt(at).Published)
	require.Equal(t, 200, s.do("POST", s.path("/resume"), "").status)
	require.Equal(t, int64(200), s.awaitBulk(at, "DONE").Published)
}

// Nothing of a body that breaks off is published, and nobody sees it.
func brokenBulk(t *testing.T, p *process) {
	s := p.stage(t)
	body := "Payload\n" + strings.Repeat("xxxxxxxxxxxxxxxxxxxxxxx\n", 40_000)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: b\r\nContent-Type: text/csv\r\nContent-Length: "+
		"%d\r\nX-Broker-Channel-Token: c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\n\r\n",
		s.path("/bulk"), len(body)+1)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	_, err = io.WriteString(conn, head+body)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	time.Sleep(500 * time.Millisecond)
	require.Contains(t, s.do("GET", s.path("/bulks"), "").body, `"Result":[]`)
	require.Zero(t, s.counts().Counts.Dispatched.Count)
}
