package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

// A drill breaks something on purpose, once, and measures how long everything
// takes to be as before. It ends with an error when a message was lost or came
// twice without the right to; its numbers are reported, whatever they are. Each
// has a MySQL and a Redis of its own and brokers with default settings:
//
//	make drills
//	make drills DRILL=Backlog JOBS=10000000
const (
	envJobs = "PENSTOCK_DRILL_JOBS" // open jobs of the drills with a backlog; default 1000000
	envAway = "PENSTOCK_DRILL_AWAY" // duration: how long a server is away; default 30s
)

const (
	drillBatch   = 500     // lines of a batch publish, jobs of a batch claim
	drillWorkers = 4       // that publish or drain side by side
	drillWindow  = 100_000 // the default of BROKER_QUEUE_WINDOW
	// drillInFlight is the most jobs that a broker holds leases on for a push
	// consumer: 64 requests (BROKER_CONSUMER_CONCURRENCY) and 63 claimed ahead.
	drillInFlight = 64 + 63
)

// A rig is the servers of one drill and what it says.
type rig struct {
	*world
	b     *testing.B
	name  string
	admin *redis.Client
}

func newRig(b *testing.B) *rig {
	b.Helper()
	mysql := servers.StartMySQL(b, "--innodb-buffer-pool-size=1G", "--loose-innodb-log-file-size=1G",
		"--loose-innodb-redo-log-capacity=1G")
	server := servers.StartRedis(b)
	w := &world{t: b, redis: server, mysql: mysql, env: []string{"BROKER_MYSQL_DSN=" + mysql.DSN(), "BROKER_REDIS_URL=" +
		server.URL()}}
	b.ReportMetric(0, "ns/op") // how long a drill lasts says nothing
	fmt.Println()              // the testing package has begun a line
	return &rig{world: w, b: b, name: strings.TrimPrefix(b.Name(), "BenchmarkDrill"), admin: admin(b, server)}
}

// say prints a line at once: a drill takes minutes.
func (r *rig) say(format string, args ...any) {
	fmt.Printf("%s: %s\n", r.name, fmt.Sprintf(format, args...))
}

// report makes a number a metric of the benchmark and prints it with what it means.
func (r *rig) report(unit string, value float64, meaning string) {
	r.b.ReportMetric(value, unit)
	r.say("%-30s %10.2f  %s", unit, value, meaning)
}

// drillJobs is how many open jobs a drill begins with.
func drillJobs(b *testing.B) int {
	b.Helper()
	text := os.Getenv(envJobs)
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10*drillBatch {
		b.Fatalf("%s=%s is no number of at least %d", envJobs, text, 10*drillBatch)
	}
	return n
}

// drillAway is how long a server is away.
func drillAway(b *testing.B) time.Duration {
	b.Helper()
	text := os.Getenv(envAway)
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		b.Fatalf("%s=%s is no duration above 0", envAway, text)
	}
	return d
}

var drillFiller = strings.Repeat("x", 88)

// drillBody is the payload of the n-th message: 100 bytes.
func drillBody(n int) string { return fmt.Sprintf("m-%010d%s", n, drillFiller) }

// drillNumber is the n of drillBody.
func drillNumber(body string) (n int, err error) {
	_, err = fmt.Sscanf(body[:min(12, len(body))], "m-%d", &n)
	return n, err
}

// sideBySide runs f n times at once and returns what failed.
func sideBySide(n int, f func() error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// together is sideBySide for what must not fail.
func (r *rig) together(n int, f func() error) {
	r.b.Helper()
	if err := sideBySide(n, f); err != nil {
		r.b.Fatal(err)
	}
}

// fill publishes the messages from..to-1 to channel c through the batch route.
func (r *rig) fill(p *process, from, to int, priority func(n int) int) {
	r.b.Helper()
	var next atomic.Int64
	next.Store(int64(from))
	r.together(drillWorkers, func() error {
		for {
			first := int(next.Add(drillBatch)) - drillBatch
			if first >= to {
				return nil
			}
			if err := p.fillBatch(first, min(first+drillBatch, to), priority); err != nil {
				return err
			}
		}
	})
}

func (p *process) fillBatch(from, to int, priority func(n int) int) error {
	var lines strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&lines, "{\"Priority\":%d,\"Payload\":%q}\n", priority(n), drillBody(n))
	}
	r, err := p.try("POST", "/channel/c/batch", lines.String(), append([]string{"Content-Type", "application/x-ndjson"},
		producerTokens...)...)
	if err != nil {
		return err
	}
	if stored := strings.Count(r.body, `{"Status":201`); stored != to-from {
		return fmt.Errorf("%d of %d lines were stored: %d %s", stored, to-from, r.status, tail(r.body, 300))
	}
	return nil
}

// livePace is the number of publishes a second of live.
const livePace = 200

// live publishes to the channel live for a time and returns how long the answers took.
func (r *rig) live(p *process, span time.Duration) (took []time.Duration) {
	tick := time.NewTicker(time.Second / livePace)
	defer tick.Stop()
	answers, sent := make(chan time.Duration, 1<<16), 0
	for end := time.Now().Add(span); time.Now().Before(end); sent++ {
		<-tick.C
		go func() {
			begun := time.Now()
			a, err := p.try("POST", "/channel/live/broadcast", strings.Repeat("z", 200), producerTokens...)
			if err != nil || a.status != http.StatusCreated {
				r.say("a publish beside: %d %s %v", a.status, a.body, err)
			}
			answers <- time.Since(begun)
		}()
	}
	for range sent {
		took = append(took, <-answers)
	}
	slices.Sort(took)
	return took
}

// drillKey is a key of the only consumer; what it holds is in redisq/doc.go.
func drillKey(name string) string { return redisq.DefaultPrefix + "{c1}:" + name }

// flush empties Redis. It returns when the order was given, and the messages
// whose jobs were leased at that very moment: those alone may come twice.
func (r *rig) flush() (at time.Time, held map[ident.ID]bool) {
	r.b.Helper()
	var leased *redis.StringSliceCmd
	at = time.Now()
	_, err := r.admin.TxPipelined(r.b.Context(), func(p redis.Pipeliner) error {
		leased = p.ZRange(r.b.Context(), drillKey("x"), 0, -1)
		p.FlushAll(r.b.Context())
		return nil
	})
	if err != nil {
		r.b.Fatal(err)
	}
	held = map[ident.ID]bool{}
	for _, member := range leased.Val() {
		held[ident.ID([]byte(member))] = true
	}
	return at, held
}

// A fillLevel is how much Redis holds of the consumer.
type fillLevel struct {
	jobs    int64 // ready, delayed and leased
	outside bool  // it knows that there are more in the store
}

func (r *rig) level() (l fillLevel, err error) {
	var sizes [3]*redis.IntCmd
	var outside *redis.StringCmd
	_, err = r.admin.Pipelined(r.b.Context(), func(p redis.Pipeliner) error {
		for i, name := range []string{"r", "d", "x"} {
			sizes[i] = p.ZCard(r.b.Context(), drillKey(name))
		}
		outside = p.HGet(r.b.Context(), drillKey("c"), "sp")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return l, err
	}
	for _, size := range sizes {
		l.jobs += size.Val()
	}
	l.outside = outside.Err() == nil && !strings.HasPrefix(outside.Val(), "-")
	return l, nil
}

// knows reports whether every one of the open jobs can be handed out: it is in
// Redis, or the window has been full and Redis knows that more wait in the store;
// a refill begins when a quarter of the window is free. A hundredth of tolerance
// is for the jobs that come and go meanwhile.
func (l fillLevel) knows(open int) bool {
	if l.outside && l.jobs >= drillWindow*74/100 {
		return true
	}
	return l.jobs >= int64(open)*99/100
}

// awaitKnown waits until Redis knows about all open jobs again.
func (r *rig) awaitKnown(open func() int) time.Time {
	r.b.Helper()
	for deadline := time.Now().Add(5 * patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := r.level()
		if err != nil {
			r.b.Fatal(err)
		}
		if l.knows(open()) {
			return time.Now()
		}
		if time.Now().After(deadline) {
			r.b.Fatalf("Redis knows %d jobs (more outside: %v) of %d", l.jobs, l.outside, open())
		}
	}
}

// watchMemory samples what Redis uses until the returned function is called,
// which returns the most, in bytes.
func (r *rig) watchMemory() (most func() float64) {
	c := admin(r.b, r.redis)
	stop, peak := make(chan struct{}), make(chan float64)
	go func() {
		var largest float64
		for {
			info, err := c.InfoMap(context.Background(), "memory").Result()
			if used, e := strconv.ParseFloat(info["Memory"]["used_memory"], 64); err == nil && e == nil {
				largest = max(largest, used)
			}
			select {
			case <-stop:
				peak <- largest
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() float64 { close(stop); return <-peak }
}
