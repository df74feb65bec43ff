package main

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// answerWithin is the promise of intake.AnswerWithin and what a machine that
// runs several tests at once may add to it.
const answerWithin = 5*time.Second + 15*time.Second

// A told is what one request of a steady producer got.
type told struct {
	key    string // X-Broker-Message-ID
	try    int    // from 1
	status int    // 0: none
	err    error
	sent   time.Time
	took   time.Duration
}

// acked reports whether the producer may forget the message. A duplicate of
// what it sent itself before is one that is stored.
func (a told) acked() bool { return a.status == 201 || a.status == 409 && a.try > 1 }

// A steady is a few producers that publish all the time, at a pace that leaves
// the machine to others, and repeat each message with the same ID until it is
// acknowledged. It remembers every answer.
type steady struct {
	stage *stage
	stop  chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex
	answers []told
	acked   map[string]time.Time
	given   []string // unacknowledged when patience ended
}

// startSteady publishes to the stage's channel, each producer through its own
// choice of target.
func startSteady(s *stage, producers int, target func(producer int) *process) *steady {
	l := &steady{stage: s, stop: make(chan struct{}), acked: map[string]time.Time{}}
	for n := range producers {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				l.publish(target(n), fmt.Sprintf("%d-%d", n, i))
				select {
				case <-l.stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	return l
}

// publish repeats a message until it is acknowledged.
func (l *steady) publish(p *process, key string) {
	headers := append(append([]string{}, producerTokens...), "X-Broker-Message-ID", key)
	end := time.Now().Add(2 * patience)
	for try := 1; ; try++ {
		a := told{key: key, try: try, sent: time.Now()}
		var r reply
		r, a.err = p.try("POST", l.stage.path("/broadcast"), "m-"+key, headers...)
		a.took, a.status = time.Since(a.sent), r.status
		if a.err != nil {
			a.status = 0
		}
		l.mu.Lock()
		l.answers = append(l.answers, a)
		if a.acked() {
			l.acked[key] = time.Now()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if time.Now().After(end) {
			l.mu.Lock()
			l.given = append(l.given, key)
			l.mu.Unlock()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *steady) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// progress waits for n more acknowledgements.
func (l *steady) progress(n int) {
	l.stage.t.Helper()
	n += l.count()
	eventually(l.stage.t, "acknowledgements", func() bool { return l.count() >= n })
}

// since returns the answers to requests that were sent at a time or later.
func (l *steady) since(at time.Time) (all []told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if !a.sent.Before(at) {
			all = append(all, a)
		}
	}
	return all
}

// refused counts the 503 since a time.
func (l *steady) refused(since time.Time) (n int) {
	for _, a := range l.since(since) {
		if a.status == 503 {
			n++
		}
	}
	return n
}

// awaitRefusal waits for a 503 to a request sent after a time.
func (l *steady) awaitRefusal(since time.Time) {
	l.stage.t.Helper()
	eventually(l.stage.t, "a 503", func() bool { return l.refused(since) > 0 })
}

// recovery waits for the first 201 after a time and returns how long it took.
func (l *steady) recovery(healed time.Time) (took time.Duration) {
	l.stage.t.Helper()
	eventually(l.stage.t, "the first 201 afterwards", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, a := range l.answers {
			if end := a.sent.Add(a.took); a.status == 201 && end.After(healed) && (took == 0 || end.Sub(healed) < took) {
				took = end.Sub(healed)
			}
		}
		return took > 0
	})
	return took
}

// A summary is what the answers amount to.
type summary struct {
	acked, refused int
	slowest        time.Duration
}

// finish lets every producer end its message and checks the promise: each answer
// is 201, 409 to a repetition, or 503, and came in time; everything is
// acknowledged in the end.
func (l *steady) finish() summary {
	t := l.stage.t
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	require.Empty(t, l.given, "never acknowledged")
	var sum summary
	for _, a := range l.answers {
		require.NoError(t, a.err, "the broker always answers")
		require.True(t, a.acked() || a.status == 503, "%d to try %d of %s", a.status, a.try, a.key)
		sum.slowest = max(sum.slowest, a.took)
		if a.status == 503 {
			sum.refused++
		}
	}
	sum.acked = len(l.acked)
	require.LessOrEqual(t, sum.slowest, answerWithin)
	return sum
}

// requireStoredOnce checks that the channel holds exactly the acknowledged
// messages, each once.
func (l *steady) requireStoredOnce(dsn string) {
	t := l.stage.t
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	rows, err := db.Query(`
SELECT m.msg_key, m.payload
FROM channels c
JOIN messages m ON m.channel_no = c.no
WHERE c.id = ?`, l.stage.channel)
	require.NoError(t, err)
	defer rows.Close()
	stored := map[string]int{}
	for rows.Next() {
		var key, payload string
		require.NoError(t, rows.Scan(&key, &payload))
		require.Equal(t, "m-"+key, payload)
		stored[key]++
	}
	require.NoError(t, rows.Err())
	for key := range l.acked {
		require.Equal(t, 1, stored[key], "message %s is stored once", key)
	}
	require.Len(t, stored, len(l.acked), "nothing else is stored")
}

// bodies are the payloads of what was acknowledged.
func (l *steady) bodies() []string {
	out := make([]string, 0, len(l.acked))
	for key := range l.acked {
		out = append(out, "m-"+key)
	}
	return out
}

// requireAllOf checks everything at the end: stored once, delivered, and at
// most so many copies too many.
func (l *steady) requireAllOf(dsn string, sink *sink, copies int) {
	l.stage.t.Helper()
	l.requireStoredOnce(dsn)
	require.LessOrEqual(l.stage.t, l.stage.world.in(l.stage.t).requireAll(sink, l.bodies()), copies,
		"delivered more than once")
}

// dsn is where the world's brokers keep their messages.
func (w *world) dsn() string {
	for _, line := range w.env {
		if dsn, ok := strings.CutPrefix(line, "BROKER_MYSQL_DSN="); ok {
			return dsn
		}
	}
	w.t.Fatal("this world has no MySQL")
	return ""
}

// only is the target of a fleet of one.
func only(p *process) func(int) *process { return func(int) *process { return p } }

// gauge reads a metric without labels.
func (p *process) gauge(t testing.TB, name string) (v float64) {
	t.Helper()
	v, err := p.metric(name)
	require.NoError(t, err)
	return v
}

// count is gauge for a metric that is absent until something was counted.
func (p *process) count(t testing.TB, name string) float64 {
	t.Helper()
	if r := p.do("GET", "/metrics", "", "X-Broker-Admin-Token", adminToken); !strings.Contains(r.body, "\n"+name+" ") {
		require.Equal(t, 200, r.status)
		return 0
	}
	return p.gauge(t, name)
}

// metric is gauge for a broker that may be away.
func (p *process) metric(name string) (v float64, err error) {
	return p.metricOf("/metrics", name)
}

// metricOf is metric of another page.
func (p *process) metricOf(page, name string) (v float64, err error) {
	r, err := p.try("GET", page, "", "X-Broker-Admin-Token", adminToken)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(r.body) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
