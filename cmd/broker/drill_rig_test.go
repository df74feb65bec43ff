package main

import (
	"context"
	"database/sql"
	"encoding/json"
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

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/internal/realservers"
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
	mysql := realservers.StartMySQL(b, "--innodb-buffer-pool-size=1G", "--loose-innodb-log-file-size=1G", "--loose-innodb-redo-log-capacity=1G")
	server := realservers.StartRedis(b)
	w := &world{t: b, redis: server, mysql: mysql, env: []string{"BROKER_MYSQL_DSN=" + mysql.DSN(), "BROKER_REDIS_URL=" + server.URL()}}
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

// fill publishes the messages from..to-1 to channel c through the batch door.
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
	r, err := p.try("POST", "/channel/c/batch", lines.String(), append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	if err != nil {
		return err
	}
	if stored := strings.Count(r.body, `{"Status":201`); stored != to-from {
		return fmt.Errorf("%d of %d lines were stored: %d %s", stored, to-from, r.status, tail(r.body, 300))
	}
	return nil
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

// A ledger is which of the numbered messages were delivered, a bit each, and
// which came again.
type ledger struct {
	mu      sync.Mutex
	bits    []uint64
	seen    int
	repeats []ident.ID
	foreign error // a delivery that nobody sent
}

func newLedger(size int) *ledger { return &ledger{bits: make([]uint64, size/64+1)} }

// deliver records a delivery by the ID of its job and reports whether it is the
// first of its message.
func (l *ledger) deliver(job, body string) (message ident.ID, first bool) {
	id, err := ident.Parse(job)
	message, _, _ = id.Split()
	n, e := drillNumber(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = errors.Join(err, e); err != nil || n < 0 || n/64 >= len(l.bits) || body != drillBody(n) {
		l.foreign = fmt.Errorf("job %q with body %q: %w", job, body, err)
		return message, false
	}
	if l.bits[n/64]&(1<<(n%64)) != 0 {
		l.repeats = append(l.repeats, message)
		return message, false
	}
	l.bits[n/64] |= 1 << (n % 64)
	l.seen++
	return message, true
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

func (l *ledger) has(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bits[n/64]&(1<<(n%64)) != 0
}

// requireWhole ends the drill unless all of the first n messages were delivered
// and none twice but those held at a flush.
func (r *rig) requireWhole(l *ledger, n int, held ...map[ident.ID]bool) {
	r.b.Helper()
	if l.foreign != nil {
		r.b.Fatal(l.foreign)
	}
	for i := range n {
		if !l.has(i) {
			r.b.Fatalf("message %d was never delivered", i)
		}
	}
	for _, id := range l.repeats {
		if !slices.ContainsFunc(held, func(h map[ident.ID]bool) bool { return h[id] }) {
			r.b.Fatalf("message %s was delivered twice and was not in flight at a flush", id)
		}
	}
}

// requireOver waits until the store has n jobs delivered: no more, and none open.
func (r *rig) requireOver(n int) {
	r.b.Helper()
	db, err := sql.Open("mysql", r.dsn())
	if err != nil {
		r.b.Fatal(err)
	}
	defer db.Close()
	var delivered int
	for deadline := time.Now().Add(patience); delivered < n && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := db.QueryRow("SELECT COUNT(*) FROM deliveries").Scan(&delivered); err != nil {
			r.b.Fatal(err)
		}
	}
	if delivered != n {
		r.b.Fatalf("%d jobs are delivered by the store, not %d", delivered, n)
	}
}

// A pace publishes numbered messages at a fixed rate, whatever becomes of those
// before: an open loop. The message ID is the number, and nothing is repeated.
type pace struct {
	p      *process
	first  int
	client *http.Client
	stop   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	answers []told
}

// startPace begins with the message `first` and sends perSecond of them.
func startPace(p *process, first, perSecond int) *pace {
	l := &pace{p: p, first: first, stop: make(chan struct{}),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}}
	begun := time.Now()
	l.wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))):
				l.wg.Go(func() { l.publish(first + i) })
			}
		}
	})
	return l
}

func (l *pace) publish(n int) {
	a := told{key: fmt.Sprintf("%010d", n), try: 1, sent: time.Now()}
	req, err := http.NewRequest("POST", l.p.base+"/channel/c/broadcast", strings.NewReader(drillBody(n)))
	if err == nil {
		for i := 0; i < len(producerTokens); i += 2 {
			req.Header.Set(producerTokens[i], producerTokens[i+1])
		}
		req.Header.Set("X-Broker-Message-ID", a.key)
		var res *http.Response
		if res, err = l.client.Do(req); err == nil {
			a.status = res.StatusCode
			_ = res.Body.Close()
		}
	}
	a.err, a.took = err, time.Since(a.sent)
	l.mu.Lock()
	l.answers = append(l.answers, a)
	l.mu.Unlock()
}

// count is the number of answers until now.
func (l *pace) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answers)
}

// ackedSince counts the messages sent after a time that were acknowledged.
func (l *pace) ackedSince(at time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.sent.After(at) && a.acked() {
			n++
		}
	}
	return n
}

// finish ends the load and returns all answers.
func (l *pace) finish() []told {
	close(l.stop)
	l.wg.Wait()
	l.client.CloseIdleConnections()
	return l.answers
}

// drillBodyOf is what a message of a pace carries.
func drillBodyOf(a told) string { return "m-" + a.key + drillFiller }

// answered is when the answer came.
func (a told) answered() time.Time { return a.sent.Add(a.took) }

// slowest is the longest that one of the answers took.
func slowest(answers []told) (d time.Duration) {
	for _, a := range answers {
		d = max(d, a.took)
	}
	return d
}

// first is when each body came to the sink the first time.
func (s *sink) first() map[string]time.Time {
	first := map[string]time.Time{}
	for _, r := range s.all() {
		if _, again := first[r.body]; !again {
			first[r.body] = r.at
		}
	}
	return first
}

// A drain is the batch pull workers of one consumer, what they were handed, and
// how quickly and in which order.
type drain struct {
	p      *process
	ledger *ledger
	want   int // different messages in the end
	limit  int // jobs of a claim
	// handed is told of each job that a claim brought, at the time of its answer.
	handed func(j claimed, at time.Time) (first bool)

	mu      sync.Mutex
	claims  []time.Duration // of each claim that brought jobs, waiting for them included
	short   int             // claims that brought fewer than they asked for
	refused int             // requests answered 503
	// atFlush is true from a flush until Redis knows all open jobs again. floor is
	// the lowest priority that a claim has brought whose whole time was away from
	// that, floorAll the same of all claims; -1 stands for none.
	atFlush             bool
	floor, floorAll     int
	disorder, disorders int       // see order
	flushed             time.Time // zero: not yet
	again               time.Time // the first answer after that with something new
}

func newDrain(p *process, l *ledger, want int) *drain {
	return &drain{p: p, ledger: l, want: want, limit: drillBatch, floor: -1, floorAll: -1,
		handed: func(j claimed, _ time.Time) (first bool) { _, first = l.deliver(j.ID, j.Message.Payload); return first }}
}

// work claims and finishes until everything was delivered and nothing is left.
func (d *drain) work() error {
	for last := time.Now(); ; {
		jobs, err := d.claim()
		if err == nil && len(jobs) > 0 {
			last = time.Now()
			err = d.finish(jobs)
		}
		if err != nil {
			return err
		}
		if len(jobs) == 0 && d.ledger.count() >= d.want {
			return nil
		}
		if time.Since(last) > patience {
			return fmt.Errorf("%d of %d messages came, and no more for %v", d.ledger.count(), d.want, patience)
		}
	}
}

func (d *drain) claim() ([]claimed, error) {
	d.mu.Lock()
	floor, floorAll, atFlush := d.floor, d.floorAll, d.atFlush
	d.mu.Unlock()
	sent := time.Now()
	r, err := d.p.try("POST", fmt.Sprintf("/channel/c/consumer/k/claim?limit=%d&wait=1s&timeout=40", d.limit), "", consumerTokens("k")...)
	took := time.Since(sent)
	if err == nil && r.status == 503 { // Redis was too slow: ask again
		d.refuse()
		return nil, nil
	}
	if err != nil || r.status != 200 {
		return nil, fmt.Errorf("claim: %d %s %w", r.status, r.body, err)
	}
	var page struct{ Result []claimed }
	if err := json.Unmarshal([]byte(r.body), &page); err != nil {
		return nil, err
	}
	var fresh []int // priorities of what comes the first time
	for _, j := range page.Result {
		if d.handed(j, sent.Add(took)) && j.Attempt == 1 { // else it was in flight: an answer was lost
			fresh = append(fresh, j.Priority)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(page.Result) > 0 {
		d.claims = append(d.claims, took)
	}
	if len(page.Result) < d.limit {
		d.short++
	}
	if len(fresh) > 0 && d.again.IsZero() && !d.flushed.IsZero() && sent.After(d.flushed) {
		d.again = sent.Add(took)
	}
	d.order(fresh, floor, floorAll, atFlush || d.atFlush)
	return page.Result, nil
}

// order compares what a claim brought with the lowest priority that had been
// brought when it was sent. Nothing is published meanwhile, so a message that
// comes for the first time and is above that was waiting then, while a lower one
// was handed out: disorder. Where the lower one was handed out near a flush it
// counts in disorders alone. Claims that overlap cannot be compared and are not.
func (d *drain) order(fresh []int, floor, floorAll int, atFlush bool) {
	for _, priority := range fresh {
		if floor >= 0 && priority > floor {
			d.disorder++
		}
		if floorAll >= 0 && priority > floorAll {
			d.disorders++
		}
	}
	if len(fresh) == 0 {
		return
	}
	least := slices.Min(fresh)
	if d.floorAll < 0 || least < d.floorAll {
		d.floorAll = least
	}
	if !atFlush && (d.floor < 0 || least < d.floor) {
		d.floor = least
	}
}

// refuse counts a 503, and waits as its Retry-After asks for.
func (d *drain) refuse() {
	d.mu.Lock()
	d.refused++
	d.mu.Unlock()
	time.Sleep(time.Second)
}

// finish reports the jobs delivered, until it is told that they are. 409 is what a
// job is answered whose lease went with Redis: it comes again.
func (d *drain) finish(jobs []claimed) error {
	var body strings.Builder
	body.WriteString(`{"Updates":[`)
	for i, j := range jobs {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"ID":%q,"Lease":%q,"NextState":"DELIVERED"}`, j.ID, j.Lease)
	}
	body.WriteString("]}")
	for end := time.Now().Add(patience); ; {
		r, err := d.p.try("POST", "/channel/c/consumer/k/jobs", body.String(), consumerTokens("k")...)
		if err == nil && strings.Count(r.body, `"Status":202`)+strings.Count(r.body, `"Status":409`) == len(jobs) {
			return nil
		}
		if refused := r.status == 503 || strings.Contains(r.body, `"Status":503`); err != nil || !refused || time.Now().After(end) {
			return fmt.Errorf("finish: %d %s %w", r.status, tail(r.body, 300), err)
		}
		d.refuse()
	}
}

// takeClaims returns the times of the claims since it was called last.
func (d *drain) takeClaims() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	claims := d.claims
	d.claims = nil
	return claims
}

// flush wipes Redis under the workers. It returns when that was, when the first
// claim after it brought something new, when Redis knew of all open jobs again (at
// most a minute later), and which jobs may come again.
func (d *drain) flush(r *rig) (at, again, known time.Time, held map[ident.ID]bool) {
	r.b.Helper()
	set := func(atFlush bool, flushed time.Time) {
		d.mu.Lock()
		d.atFlush, d.flushed = atFlush, flushed
		d.mu.Unlock()
	}
	set(true, time.Time{})
	at, held = r.flush()
	flushed := time.Now()
	set(true, flushed)
	for known = time.Now(); known.Before(at.Add(patience)); known = time.Now() {
		if level, err := r.level(); err == nil && level.knows(d.want-d.ledger.count()) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	set(false, flushed)
	eventually(r.b, "a job after the flush", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		again = d.again
		return !again.IsZero()
	})
	return at, again, known, held
}

// quantile is the value below which a share of the times lies, in ms.
func quantile(times []time.Duration, share float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[int(share*float64(len(sorted)-1))]) / 1e6
}
