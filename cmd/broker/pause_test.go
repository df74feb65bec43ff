package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// freeze stops a broker as a paused virtual machine would be.
func (p *process) freeze() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP)) }

// thaw lets it go on.
func (p *process) thaw() { require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT)) }

// halfPublish sends a publish up to the middle of its body and returns what
// sends the rest and reads the status.
func halfPublish(t *testing.T, s *stage, key string) (rest func() int) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	body := "m-" + key
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nX-Broker-Message-ID: %s\r\n",
		s.path("/broadcast"), len(body), key)
	for i := 0; i < len(producerTokens); i += 2 {
		head += producerTokens[i] + ": " + producerTokens[i+1] + "\r\n"
	}
	_, err = conn.Write([]byte(head + "\r\n" + body[:2]))
	require.NoError(t, err)
	return func() int {
		_, err := conn.Write([]byte(body[2:]))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		return res.StatusCode
	}
}

// burst publishes n messages at once, in addition to what l does.
func burst(t *testing.T, l *steady, n int) {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"MessageID":"burst-%d","Payload":"m-burst-%[1]d"}`+"\n", i)
	}
	r := l.stage.do("POST", l.stage.path("/batch"), lines.String(), append(append([]string{}, producerTokens...),
		"Content-Type", "application/x-ndjson")...)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, n, strings.Count(r.body, `"Status":201`), r.body)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range n {
		l.acked[fmt.Sprint("burst-", i)] = time.Now()
	}
}

// nodesByKey are the node numbers in the IDs of the stage's messages.
func nodesByKey(t *testing.T, s *stage, dsn string) map[string]int {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	rows, err := db.Query("SELECT m.msg_key, m.id FROM channels c JOIN messages m ON m.channel_no = c.no WHERE c.id = ?",
		s.channel)
	require.NoError(t, err)
	defer rows.Close()
	out := map[string]int{}
	for rows.Next() {
		var key string
		var id []byte
		require.NoError(t, rows.Scan(&key, &id))
		require.Len(t, id, ident.Size)
		out[key] = int(id[6])<<8 | int(id[7])
	}
	require.NoError(t, rows.Err())
	return out
}

// leasesEnded reads from the log how many jobs a broker has taken from another.
func leasesEnded(t *testing.T, p *process) (n int) {
	for line := range strings.Lines(p.log.String()) {
		var entry struct {
			Msg  string
			Jobs int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "leases ended without an outcome; jobs are due again" {
			n += entry.Jobs
		}
	}
	return n
}

// Of two brokers one is stopped for longer than all its leases and its node
// number, which a third takes, and goes on then: its jobs were delivered by the
// others, it calls nobody for them, and stores nothing under the number.
func TestPausedBrokerIsFencedOnRealServers(t *testing.T) {
	parallel(t)
	const slots = 16
	// The lease of a delivery is 1 s + 0.5 s + 3 s, that of a node number 4 s.
	w := realWorld(t).with(quick...).with("BROKER_CONSUMER_CONCURRENCY=" + strconv.Itoa(slots))
	var mu sync.Mutex
	newest := map[string]int{} // highest attempt seen of a body
	var late []string          // requests of an attempt that another had taken over
	sink := newSink(t, func(_ int, r received) int {
		n, _ := strconv.Atoi(r.header.Get("X-Broker-Attempt"))
		mu.Lock()
		if n < newest[r.body] {
			late = append(late, fmt.Sprintf("%s attempt %d after %d", r.body, n, newest[r.body]))
		}
		newest[r.body] = max(n, newest[r.body])
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		return 204
	})
	p, other := w.start(), w.start()
	s := p.stage(t, "k="+sink.URL)
	ours := nodeOf(t, p)
	here := startSteady(s, 4, only(p))
	here.progress(50)
	half := halfPublish(t, s, "half")
	burst(t, here, 1000) // so that the broker has claimed ahead of its requests
	held := 0.0
	eventually(t, "jobs claimed ahead of their requests", func() bool {
		held = p.gauge(t, "penstock_push_requests_in_flight")
		return held >= slots+slots/2 || sink.count() > 600 // a machine too slow for that: still a pause
	})
	p.freeze()
	paused := time.Now()
	before := here.count()
	var heir *process
	eventually(t, "another broker to get the number", func() bool {
		heir = w.start()
		if nodeOf(t, heir) == ours {
			return true
		}
		require.Equal(t, 0, heir.stop(), "%s", heir.log)
		return false
	})
	// All that was acknowledged is delivered while it stands still. When it stopped in
	// the middle of a transaction, the others wait up to a minute for MySQL to end that.
	here.mu.Lock()
	acked := here.bodies()
	here.mu.Unlock()
	eventually(t, "the other brokers to deliver everything", func() bool {
		for _, body := range acked {
			if sink.times(body) == 0 {
				return false
			}
		}
		return true
	})
	time.Sleep(time.Until(paused.Add(5 * time.Second))) // longer than any lease it may hold
	thawed := time.Now()
	p.thaw()
	status := half()
	allowed := []int{201, 503}
	if thawed.Sub(paused) > 25*time.Second { // its body came later than a broker waits for one
		allowed = append(allowed, 408)
	}
	require.Contains(t, allowed, status)
	here.progress(100)
	if len(allowed) > 2 { // the producers have waited longer than their client does: only the pause is to blame
		here.mu.Lock()
		here.answers = slices.DeleteFunc(here.answers, func(a told) bool {
			return a.sent.Before(thawed) && a.sent.Add(a.took).After(paused)
		})
		here.mu.Unlock()
	}
	sum := here.finish()
	if status == 201 {
		here.acked["half"] = time.Now()
	} else {
		here.publish(other, "half")
	}
	here.requireStoredOnce(w.dsn())
	copies := w.requireAll(sink, here.bodies())
	mu.Lock()
	defer mu.Unlock()
	t.Logf("paused for %v holding at least %.0f leases, with %d acknowledged; then %d more; half-read publish %d; %d "+
		"copies, %d late requests; slowest answer %v",
		thawed.Sub(paused).Round(time.Millisecond), held, before, sum.acked-before, status, copies, len(
			late), sum.slowest.Round(time.Millisecond))
	require.LessOrEqual(t, copies, leasesEnded(t, other)+leasesEnded(t, heir), "at most what was in flight")
	// A request that was being written at the very moment of the pause cannot be
	// taken back: one for each processor.
	require.LessOrEqual(t, len(late), 2, "calls on a dead lease: %v", late)
	require.Contains(t, p.log.String(), "node lease was lost; took another number")
	nodes := nodesByKey(t, s, w.dsn())
	checked := 0
	for _, a := range here.since(thawed) {
		if a.acked() && a.try == 1 {
			require.NotEqual(t, ours, nodes[a.key], "the number is the heir's now")
			checked++
		}
	}
	require.Positive(t, checked)
}
