package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// That something does not happen can be shown by no wait alone. These tests look
// into the stores of a world for the state in which it cannot happen any more: no
// job is open, Redis knows none, no delivery is under way, and the fail-safe has
// walked over all of it without bringing anything back.

// setting is the last value of a setting for the world's brokers, "" when there is none.
func (w *world) setting(name string) (value string) {
	for _, line := range w.env {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			value = v
		}
	}
	return value
}

// openStore is a connection to the store of the world, beside the brokers.
func (w *world) openStore() *sql.DB { return w.openDatabase("&_pragma=query_only(1)") }

// openDatabase is openStore with more settings for SQLite.
func (w *world) openDatabase(more string) *sql.DB {
	w.t.Helper()
	driver, dsn := "mysql", w.setting("BROKER_MYSQL_DSN")
	if dsn == "" {
		driver, dsn = "sqlite", "file:"+filepath.Join(w.setting("BROKER_DATA_DIR"), "penstock.db")+
			"?_pragma=busy_timeout(10000)"+more
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, db.Close()) })
	return db
}

// envRedisFile names the file to which a broker of a test writes the URL of its
// embedded Redis.
const envRedisFile = "PENSTOCK_TEST_REDIS_FILE"

func (w *world) redisFile() string {
	return filepath.Join(w.setting("BROKER_DATA_DIR"), "redis-of-the-test")
}

// openRedis is a connection to the Redis of the world, beside the brokers.
func (w *world) openRedis() redis.UniversalClient {
	w.t.Helper()
	url := w.setting("BROKER_REDIS_URL")
	if url == "" {
		text, err := os.ReadFile(w.redisFile())
		require.NoError(w.t, err)
		url = string(text)
	}
	var client redis.UniversalClient
	eventually(w.t, "a connection to Redis", func() bool {
		var err error
		client, _, err = redisq.Connect(context.Background(), redisq.ConnectOptions{URL: url,
			Master: w.setting("BROKER_REDIS_MASTER"), Timeout: 10 * time.Second})
		return err == nil
	})
	w.t.Cleanup(func() { _ = client.Close() }) // its server may be gone
	return client
}

// queueKeys are the keys of the ready, the delayed and the leased jobs of a consumer.
func queueKeys(consumer uint32) []string { return redisq.New(nil, redisq.Options{}).Keys(consumer)[:3] }

// A record is what the store knows of the jobs that brought a body to a sink.
type record struct {
	consumer  uint32
	message   ident.ID
	delivered int // 0 or 1
	dead      int // 0 or 1
	failed    int // attempts; not those whose lease ended, of which nothing is known
}

const selectRecords = `
SELECT
    k.no,
    m.id,
    m.payload,
    (SELECT COUNT(*) FROM deliveries d WHERE d.consumer_no = k.no AND d.message_id = m.id),
    (SELECT COUNT(*) FROM dead_jobs x WHERE x.consumer_no = k.no AND x.message_id = m.id),
    (SELECT COUNT(*) FROM attempts a WHERE a.consumer_no = k.no AND a.message_id = m.id AND a.status_code + a.duration_ms > 0)
FROM consumers k
JOIN messages m ON m.channel_no = k.channel_no
WHERE k.callback_url = ?
  AND m.audience > k.position`

// An insight is the stores of a world and what they know about one sink.
type insight struct {
	w      *world
	sink   *sink
	store  *sql.DB
	shared bool // the brokers deliver to the sinks of other tests, too
}

func (w *world) insight(s *sink) *insight {
	w.t.Helper()
	return &insight{w: w, sink: s, store: w.openStore()}
}

// records are what the store knows, by body.
func (i *insight) records() (map[string]record, error) {
	rows, err := i.store.Query(selectRecords, []byte(i.sink.URL))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]record{}
	for rows.Next() {
		var r record
		var id []byte
		var body string
		if err := rows.Scan(&r.consumer, &id, &body, &r.delivered, &r.dead, &r.failed); err != nil {
			return nil, err
		}
		copy(r.message[:], id)
		out[body] = r
	}
	return out, rows.Err()
}

func (i *insight) mustRecords() map[string]record {
	i.w.t.Helper()
	records, err := i.records()
	require.NoError(i.w.t, err)
	return records
}

// consumers are the numbers of those that post to the sink.
func (i *insight) consumers() (nos []uint32) {
	t := i.w.t
	t.Helper()
	rows, err := i.store.Query("SELECT no FROM consumers WHERE callback_url = ?", []byte(i.sink.URL))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var no uint32
		require.NoError(t, rows.Scan(&no))
		nos = append(nos, no)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, nos, "no consumer posts to this sink")
	return nos
}

// unaccounted are the requests that the sink got and whose outcome the store does not
// have, by body. While a broker lives they are under way; a request of a broker that
// died is one for ever.
func (i *insight) unaccounted() (map[string]int, map[string]record) {
	i.w.t.Helper()
	records := i.mustRecords()
	out := map[string]int{}
	for body, n := range i.sink.counts() {
		r := records[body]
		out[body] = n - r.delivered - r.failed
	}
	return out, records
}

// history is what the sink and the store know of the requests with a body, for people.
func (i *insight) history(body string, r record) (out []string) {
	const clock = "15:04:05.000"
	for _, got := range i.sink.all() {
		if got.body == body {
			out = append(out, got.at.UTC().Format(clock)+" request "+got.header.Get("X-Broker-Attempt"))
		}
	}
	rows,
		err :=
		i.store.Query(`SELECT at_ms, CONCAT('attempt ', attempt, ' status ', status_code, ' after ms ', duration_ms, ' ', error) FROM attempts WHERE consumer_no = ? AND message_id = ?
UNION ALL SELECT at_ms, CONCAT('delivered by attempt ', attempts) FROM deliveries WHERE consumer_no = ? AND message_id = ?`, r.consumer, r.message[:], r.consumer, r.message[:])
	if err != nil {
		return append(out, err.Error())
	}
	defer rows.Close()
	for rows.Next() {
		var ms int64
		var text string
		if err := rows.Scan(&ms, &text); err != nil {
			return append(out, err.Error())
		}
		out = append(out, time.UnixMilli(ms).UTC().Format(clock)+" "+text)
	}
	slices.Sort(out)
	return out
}

// alive are the brokers of the world that run.
func (w *world) alive() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
}

// busy tells what may still bring a request to the sink, "" when nothing can.
func (i *insight) busy(queue redis.UniversalClient, consumers []uint32) string {
	ctx := i.w.t.Context()
	if n := i.sink.open.Load(); n > 0 {
		return fmt.Sprint(n, " requests are under way")
	}
	for _, p := range i.w.alive() {
		if i.shared {
			break // a lease shows what is under way to this sink
		}
		for _, name := range []string{"penstock_fanout_pending_messages", "penstock_push_requests_in_flight"} {
			if n, err := p.metric(name); n != 0 || err != nil {
				return fmt.Sprint(p.base, ": ", name, " is ", n, err)
			}
		}
	}
	for _, no := range consumers {
		var sizes []*redis.IntCmd
		_, err := queue.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range queueKeys(no) {
				sizes = append(sizes, p.ZCard(ctx, key))
			}
			return nil
		})
		for _, size := range sizes {
			if err != nil || size.Val() > 0 {
				return fmt.Sprint("Redis knows jobs of consumer ", no, ": ", size, err)
			}
		}
	}
	records, err := i.records()
	if err != nil {
		return err.Error()
	}
	for body, r := range records {
		if r.delivered+r.dead == 0 {
			return "the job of " + body + " is open"
		}
	}
	return ""
}

// awaitRest returns when no request can come to the sink any more: twice nothing is
// busy, and between the two the fail-safe has walked over everything.
func (w *world) awaitRest(s *sink) { w.insight(s).awaitRest() }

// awaitRest is for a stage whose brokers other tests use at the same time.
func (s *stage) awaitRest(of *sink) {
	i := s.world.in(s.t).insight(of)
	i.shared = true
	i.awaitRest()
}

func (i *insight) awaitRest() {
	w := i.w
	w.t.Helper()
	queue := w.openRedis()
	consumers := i.consumers()
	await := func() {
		w.t.Helper()
		why := ""
		deadline := time.Now().Add(patience)
		for why = i.busy(queue, consumers); why != ""; why = i.busy(queue, consumers) {
			if time.Now().After(deadline) {
				w.t.Fatalf("after %v there is no rest: %s", patience, why)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	await()
	w.awaitWalks(w.alive()...)
	await()
}

// walks counts the rounds of the fail-safe.
const walks = "penstock_reconcile_duration_seconds_count"

// awaitWalks returns when the fail-safe of each broker that has one has looked at all
// that is stored now.
func (w *world) awaitWalks(brokers ...*process) {
	w.t.Helper()
	// It leaves alone what is younger than this.
	horizon := 2 * durable.MaxIDAge // at least the default of BROKER_RATIONAL_DELAY
	if d, err := time.ParseDuration(w.setting("BROKER_RATIONAL_DELAY")); err == nil {
		horizon = max(horizon, d)
	}
	time.Sleep(horizon)
	for _, p := range brokers {
		if slices.Contains(p.cmd.Env, "BROKER_REAPER=false") {
			continue
		}
		before, err := p.metric(walks)
		require.NoError(w.t, err)
		eventually(w.t, "the fail-safe of "+p.base+" to look", func() bool {
			now, err := p.metric(walks)
			return err == nil && now >= before+2 // the first may have begun before
		})
	}
}

// awaitWalk is awaitWalks of this broker.
func (p *process) awaitWalk() {
	p.t.Helper()
	p.world.in(p.t).awaitWalks(p)
}

// walkedPast publishes n messages, waits until the sink has them, and until the fail-safe
// has walked past them: their other jobs come back only where a loss is noticed.
func (p *process) walkedPast(s *sink, n int) (bodies []string) {
	p.t.Helper()
	for i := range n {
		bodies = append(bodies, fmt.Sprint("m-walked-past-", i))
		p.publish(bodies[i])
	}
	eventually(p.t, "the first messages", func() bool { return s.hasAll(bodies) })
	p.awaitWalk()
	return bodies
}

// in is the same world for another test.
func (w *world) in(t testing.TB) *world {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &world{t: t, env: slices.Clone(w.env), program: w.program, redis: w.redis, mysql: w.mysql,
		processes: slices.Clone(w.processes)}
}

// requireAll waits until the sink has every one of the bodies and until no request can
// come any more, and returns how many copies there were: requests beyond those whose
// outcome is stored. An attempt that failed, or took too long, is none.
func (w *world) requireAll(s *sink, acked []string) (extra int) {
	t := w.t
	t.Helper()
	eventually(t, fmt.Sprintf("all %d acknowledged messages to be delivered", len(acked)), func() bool {
		return s.hasAll(acked)
	})
	w.awaitRest(s)
	unaccounted, records := w.insight(s).unaccounted()
	for body, n := range unaccounted {
		require.True(t, strings.HasPrefix(body, "m-"), "nothing is delivered that was not sent")
		if _, kept := records[body]; kept { // else the retention has removed it
			extra += max(0, n)
		}
	}
	return extra
}

// A toll is the requests whose outcome is lost with the brokers that made them: they
// alone may be made again, once each.
type toll struct {
	*insight
	known map[string]int // unaccounted at the last death, by body
	lost  int            // all requests that were under way at a death
}

func (w *world) toll(s *sink) *toll { return &toll{insight: w.insight(s), known: map[string]int{}} }

// died counts what was under way when the only broker died. No job may have been sent
// twice by it, nor one that was over.
func (l *toll) died(what string) {
	t := l.w.t
	t.Helper()
	l.sink.awaitClosed(t)
	now, records := l.unaccounted()
	for body, n := range now {
		grown := n - l.known[body]
		require.LessOrEqual(t, grown, 1, "%s: %s was sent twice at a time", what, body)
		if records[body].delivered > 0 && grown > 0 { // the history takes a query: only for people
			require.Fail(t, "sent once more", "%s: %s was delivered, and sent once more: %v", what, body,
				l.history(body, records[body]))
		}
		l.lost += max(0, grown)
	}
	l.known = now
}

// requireRisingAttempts checks that each copy of a job has a higher attempt number: a
// Redis that lost nothing knows how often the job was claimed.
func requireRisingAttempts(t testing.TB, s *sink) {
	t.Helper()
	last := map[string]int{}
	for _, r := range s.all() {
		n, err := strconv.Atoi(r.header.Get("X-Broker-Attempt"))
		require.NoError(t, err)
		require.Greater(t, n, last[r.body], "the attempt of a copy of %s", r.body)
		last[r.body] = n
	}
}

// requireNoMore checks at rest that nothing was sent again but what was under way at a death.
func (l *toll) requireNoMore() {
	t := l.w.t
	t.Helper()
	now, _ := l.unaccounted()
	for body, n := range now {
		require.LessOrEqual(t, n, l.known[body], "%s was sent again, and no death explains it", body)
	}
}

// A flushed is the jobs of a sink's consumers that were leased when Redis was emptied.
type flushed struct {
	*insight
	queue     redis.UniversalClient
	consumers []uint32
	held      map[ident.ID]int // how often
}

func (w *world) flushed(s *sink) *flushed {
	w.t.Helper()
	f := &flushed{insight: w.insight(s), queue: w.openRedis(), held: map[ident.ID]int{}}
	f.consumers = f.insight.consumers()
	return f
}

// flushall empties Redis and notes, in the same step, what was leased.
func (f *flushed) flushall() {
	t := f.w.t
	t.Helper()
	var leased []*redis.StringSliceCmd
	_, err := f.queue.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, no := range f.consumers {
			leased = append(leased, p.ZRange(t.Context(), queueKeys(no)[2], 0, -1))
		}
		p.FlushAll(t.Context())
		return nil
	})
	require.NoError(t, err)
	for _, list := range leased {
		for _, member := range list.Val() {
			f.held[ident.ID([]byte(member))]++
		}
	}
}

// requireNoMore checks at rest that nothing was sent again but what was leased at a
// flush, and returns how many copies there were.
func (f *flushed) requireNoMore() (copies int) {
	t := f.w.t
	t.Helper()
	now, records := f.unaccounted()
	for body, n := range now {
		r, kept := records[body]
		if !kept {
			continue // removed by the retention: the store does not know its attempts any more
		}
		require.LessOrEqual(t, n, f.held[r.message], "%s was sent again, and was not under way at a flush", body)
		copies += n
	}
	return copies
}
