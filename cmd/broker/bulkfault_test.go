package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// numbered is a CSV body with a row for each number.
func numbered(n int) string {
	var b strings.Builder
	b.WriteString("Payload,MessageID\n")
	for i := range n {
		id := ""
		if i%3 == 0 {
			id = fmt.Sprint("id-", i)
		}
		fmt.Fprintf(&b, "m-%d,%s\n", i, id)
	}
	return b.String()
}

// requireEach drains the pull consumer k of channel c and requires that each number is there once.
func (p *process) requireEach(n int) {
	p.t.Helper()
	seen := map[string]int{}
	eventually(p.t, "all jobs", func() bool {
		r := p.do("POST", "/channel/c/consumer/k/claim?limit=500&timeout=600", "", consumerTokens("k")...)
		var jobs apitype.ClaimedJobs
		if r.status != 200 || json.Unmarshal([]byte(r.body), &jobs) != nil {
			return false
		}
		updates := apitype.UpdatesRequest{}
		for _, j := range jobs.Result {
			seen[j.Message.Payload]++
			updates.Updates = append(updates.Updates, apitype.Update{ID: j.ID, Lease: j.Lease, NextState: "DELIVERED"})
		}
		if len(jobs.Result) > 0 {
			body, err := json.Marshal(updates)
			require.NoError(p.t, err)
			require.Equal(p.t, 200, p.do("POST", "/channel/c/consumer/k/jobs", string(body), append(consumerTokens("k"),
				"Content-Type", "application/json")...).status)
		}
		return len(seen) >= n
	})
	for i := range n {
		require.Equal(p.t, 1, seen[fmt.Sprint("m-", i)], "m-%d", i)
	}
	require.Len(p.t, seen, n)
	count := (&stage{process: p, channel: "c"}).counts().Counts
	require.Equal(p.t, n, count.Dispatched.Count, "each row is one message")
}

// A broker that is killed at any step of a bulk neither loses nor repeats a row.
func TestFaultKillOfBulks(t *testing.T) {
	parallel(t)
	for point, hits := range map[string]int{failpoint.AfterBulkBody: 1, failpoint.BeforeBulkStep: 3,
		failpoint.AfterBulkStep: 3, failpoint.AfterFanout: 2} {
		t.Run(point, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, w *world) {
				const n = 1000
				p := w.with(quick...).start(envKill + "=" + point + ":" + fmt.Sprint(hits))
				p.sample("k")
				s := &stage{process: p, channel: "c"}
				at := ""
				r, err := p.try("POST", "/channel/c/bulk", numbered(n), append([]string{"Content-Type", "text/csv"},
					producerTokens...)...)
				if err == nil {
					require.Equal(t, 202, r.status, r.body)
					at = r.header.Get("Location")
				}
				p.awaitEnd()
				q := w.start()
				s = s.on(q)
				if at == "" { // stored, not answered
					require.Equal(t, failpoint.AfterBulkBody, point)
					var list apitype.List
					require.NoError(t, json.Unmarshal([]byte(s.do("GET", s.path("/bulks"), "").body), &list))
					require.Len(t, list.Result, 1)
					at = list.Result[0]
				}
				b := s.awaitBulk(at, "DONE")
				require.Equal(t, [4]int64{n, n, 0, 0}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates})
				q.requireEach(n)
				eventually(t, "the count", func() bool { b = s.bulkAt(at); return b.Delivered == n && b.Open == 0 })
			})
		})
	}
}

// A broker that is killed while a body comes leaves nothing that anybody sees.
func TestFaultKillWhileABulkComesPublishesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(envKill + "=" + failpoint.AfterBulkChunk + ":2")
		p.sample("k")
		_, err := p.try("POST", "/channel/c/bulk", numbered(100_000), append([]string{"Content-Type", "text/csv"},
			producerTokens...)...)
		require.Error(t, err)
		p.awaitEnd()
		q := w.start()
		require.Contains(t, q.do("GET", "/channel/c/bulks", "").body, `"Result":[]`)
		require.Equal(t, 202, q.do("POST", "/channel/c/bulk", numbered(10), append([]string{"Content-Type", "text/csv"},
			producerTokens...)...).status)
		q.requireEach(10)
	})
}

// A broker that is killed while it fetches a file is replaced, and the fetch begins anew.
func TestFaultKillWhileAFileIsFetched(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...).with(fetchInside)
	url := file(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, numbered(60_000)) })
	p := w.start(envKill + "=" + failpoint.AfterBulkChunk + ":2")
	p.sample("k")
	s := &stage{process: p, channel: "c"}
	at := s.bulk("application/json", `{"FileURL":"`+url+
		`","Format":"csv","Template":{"Payload":"{{Payload}}"},"Rate":"20000/1s"}`)
	p.awaitEnd()
	s = s.on(w.start())
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, int64(60_000), b.Published)
	require.Equal(t, 60_000, s.counts().Counts.Dispatched.Count)
}

// An owner that stands still is replaced within 20 s, also inside a transaction, and does no harm
// when it goes on. Redis is wiped as well.
func TestFaultAStoppedOwnerOfABulkIsReplaced(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	p := w.start()
	p.sample("k")
	s := &stage{process: p, channel: "c"}
	const n = 12_000
	at := s.bulk("text/csv", numbered(n))
	eventually(t, "the first rows", func() bool { return s.bulkAt(at).Published > 0 })
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	q := w.start()
	s = s.on(q)
	first := s.bulkAt(at).Published
	require.Less(t, first, int64(n))
	eventually(t, "another owner", func() bool { return s.bulkAt(at).Published > first })
	t.Logf("replaced %v after it was stopped", time.Since(stopped))
	w.flushall()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	b := s.awaitBulk(at, "DONE")
	require.Equal(t, [4]int64{n, n, 0, 0}, [4]int64{b.Total, b.Published, b.Rejected, b.Duplicates})
	q.requireEach(n)
}
