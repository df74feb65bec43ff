package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/internal/test/traffic"
)

// patience is how long a test waits for an event before it calls it missing.
// Nothing is measured with it.
const patience = 3 * time.Minute

// A world is a pair of stores and the brokers on it.
type world struct {
	t       testing.TB
	env     []string
	program string               // "": this test binary
	folder  string               // where its brokers run; "": here
	redis   *servers.RedisServer // nil: embedded
	mysql   *servers.MySQLServer // nil: embedded or shared

	mu        sync.Mutex
	processes []*process // all that were started
}

// onEachStore runs a test on the embedded stores and on real servers.
func onEachStore(t *testing.T, f func(t *testing.T, w *world)) {
	t.Parallel() // it is nothing by itself
	t.Run("embedded", func(t *testing.T) { parallel(t); f(t, embeddedWorld(t)) })
	t.Run("real servers", func(t *testing.T) { parallel(t); f(t, realWorld(t)) })
}

// embeddedWorld is a folder with the tables of the store.
func embeddedWorld(t *testing.T) *world {
	w := emptyWorld(t)
	tables.SQLite(t, w.setting("BROKER_DATA_DIR"))
	return w
}

// emptyWorld is an empty folder: the first broker makes the tables.
func emptyWorld(t *testing.T) *world {
	return &world{t: t, env: []string{"BROKER_DATA_DIR=" + t.TempDir()}}
}

// realWorld is a database of its own with the tables of the store, on the shared server, and a
// Redis of its own.
func realWorld(t testing.TB) *world {
	redis := servers.StartRedis(t)
	return &world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t), "BROKER_REDIS_URL=" +
		redis.URL()}}
}

// with adds settings for the brokers started afterwards.
func (w *world) with(env ...string) *world {
	w.env = append(w.env, env...)
	return w
}

// quick are settings that make time pass faster.
var quick = []string{"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=1s", "BROKER_STOP_TIMEOUT=1s",
	"BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=2", "BROKER_RETRY_MAX_DELAY=1s"}

// fetchInside lets users' URLs be on loopback, where the servers of the tests are.
const fetchInside = "BROKER_FETCH_EGRESS=private"

const adminToken = "test-admin-token"

// A process is one broker.
type process struct {
	t     testing.TB
	world *world
	cmd   *exec.Cmd
	base  string
	log   *syncBuffer
	done  chan struct{}
}

// start runs a broker and waits until it is ready.
func (w *world) start(env ...string) *process {
	w.t.Helper()
	p := w.launch(env...)
	p.awaitReady()
	return p
}

// launch runs a broker without waiting.
func (w *world) launch(env ...string) *process {
	w.t.Helper()
	return w.run(cmp.Or(w.program, os.Args[0]), env...)
}

// run runs a program that is a broker without waiting.
func (w *world) run(program string, env ...string) *process {
	w.t.Helper()
	addr := freeAddr(w.t)
	p := &process{t: w.t, world: w, base: "http://" + addr, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(program, "serve")
	p.cmd.Dir = w.folder
	p.cmd.Env = append(clearedEnv(), envMain+"=1", "BROKER_LISTEN="+addr, "BROKER_ADMIN_TOKEN="+adminToken,
		"BROKER_OPEN_MANAGEMENT=true", "BROKER_ALLOWED_HOSTS=b", // b is the Host of raw requests
		"BROKER_AUTH_FAILURES=0") // tests send many wrong tokens from one address
	p.cmd.Env = append(p.cmd.Env, w.env...)
	p.cmd.Env = append(p.cmd.Env, env...)
	if w.setting("BROKER_DATA_DIR") != "" {
		p.cmd.Env = append(p.cmd.Env, envRedisFile+"="+w.redisFile())
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(w.t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	w.t.Cleanup(func() {
		said := 6000
		if p.endedWell() { // a test that starts many brokers would bury its own failure
			said = 200
		}
		p.kill()
		text := p.log.String()
		if w.t.Failed() {
			w.t.Logf("log of %s:\n%s", p.base, tail(text, said))
		}
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			w.t.Errorf("broker %s reported a race or a panic:\n%s", p.base, tail(text, 20_000))
		}
	})
	return p
}

// clearedEnv is our environment without settings of a broker. A broker has a pace of the garbage
// collector of its own.
func clearedEnv() []string {
	var out []string
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "BROKER_") && !strings.HasPrefix(line, "PENSTOCK_TEST_") &&
			!strings.HasPrefix(line, "GOGC=") {
			out = append(out, line)
		}
	}
	return out
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// nextPort walks through ports that nobody else takes between our look and the broker's: they are
// below those of the servers of the tests, and of the system's outgoing connections.
var nextPort atomic.Int32

const firstPort, ports = 5_000, 10_000

// refusedPorts are those of the range to which a browser, and fetch of Node, send nothing:
// https://fetch.spec.whatwg.org/#port-blocking
var refusedPorts = []int{5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}

func init() { nextPort.Store(rand.Int32N(ports)) }

func freeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := int(firstPort + nextPort.Add(1)%ports)
		if slices.Contains(refusedPorts, port) {
			continue
		}
		addr := "127.0.0.1:" + strconv.Itoa(port)
		if l, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, l.Close())
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (p *process) awaitReady() {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		select {
		case <-p.done:
			if slices.ContainsFunc(p.cmd.Env, func(s string) bool { return strings.HasPrefix(s, envKill+"=") }) {
				return // what an earlier one has left may kill it before somebody sees it ready
			}
			p.t.Fatalf("the broker ended at start:\n%s", p.log)
		default:
		}
		res, err := http.Get(p.base + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK && p.saidReady() {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatalf("the broker is not ready:\n%s", p.log)
}

// saidReady reports whether all lines of the start are in the log: the last of them comes a little later than the
// first answer. Where the log goes elsewhere, or has no more than warnings, or is of an older release, nobody knows.
func (p *process) saidReady() bool {
	if p.cmd.Stdout != p.log || p.cmd.Stderr != p.log || p.cmd.Path != os.Args[0] ||
		slices.ContainsFunc(p.cmd.Env, func(s string) bool { return strings.HasPrefix(s, "BROKER_LOG_") }) {
		return true
	}
	return strings.Contains(p.log.String(), "broker is ready")
}

// kill ends the process as a power loss would, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the process to stop and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.awaitEnd()
	return p.cmd.ProcessState.ExitCode()
}

// ended reports whether the process has ended, however that came.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// endedWell reports whether the broker has stopped by itself, without an error.
func (p *process) endedWell() bool { return p.ended() && p.cmd.ProcessState.Success() }

func (p *process) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the broker did not end:\n%s", p.log)
	}
}

// A reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   string
}

// json decodes the body.
func (r reply) json(t testing.TB) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &m), r.body)
	return m
}

// stored reports whether the answer to a publish says that the message is stored,
// by this request or an earlier one.
func (r reply) stored() bool {
	return r.status == 201 || r.status == 409 && strings.Contains(r.body, `"duplicate_message_id"`)
}

// try sends a request once; headers are pairs. Most tests want ask or do.
func (p *process) try(method, path, body string, headers ...string) (reply, error) {
	return p.send(method, path, body, headerOf(headers))
}

func headerOf(pairs []string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// send sends a request with its header as it is.
func (p *process) send(method, path, body string, header http.Header) (reply, error) {
	req, err := http.NewRequest(method, p.base+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := readText(res.Body, res.ContentLength)
	return reply{res.StatusCode, res.Header, text}, err
}

// readText reads a body to its end, in one piece of memory when its length is known (not -1): with
// the race detector, copies of large bodies take most of the time of a test.
func readText(r io.Reader, length int64) (string, error) {
	var b strings.Builder
	b.Grow(int(max(0, min(length, 64<<20))))
	_, err := io.Copy(&b, r)
	return b.String(), err
}

// client keeps enough connections for the loads of these tests.
var client = &http.Client{Timeout: time.Minute, Transport: traffic.HTTP(&http.Transport{MaxIdleConnsPerHost: 128,
	MaxConnsPerHost: 256}),
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// do sends a request as a patient client (ask) and requires an answer.
func (p *process) do(method, path, body string, headers ...string) reply {
	p.t.Helper()
	r, err := p.ask(method, path, body, headers...)
	require.NoError(p.t, err)
	return r
}

// put creates a resource from form fields (pairs).
func (p *process) put(path string, fields ...string) reply {
	p.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r := p.do("PUT", path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	require.Contains(p.t, []int{200, 201}, r.status, r.body)
	return r
}

// sample creates producer p, channel c, and the consumers given as
// "id=callback" (push) or "id" (pull); every token is "<id>-token".
func (p *process) sample(consumers ...string) {
	p.t.Helper()
	p.put("/producer/p", "token", "p-token")
	p.put("/channel/c", "token", "c-token")
	for _, k := range consumers {
		id, callback, push := strings.Cut(k, "=")
		if push {
			p.put("/channel/c/consumer/"+id, "token", id+"-token", "callbackUrl", callback)
		} else {
			p.put("/channel/c/consumer/"+id, "token", id+"-token", "type", "pull")
		}
	}
}

// producerTokens and consumerTokens are the headers of sample's resources.
var producerTokens = []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "p",
	"X-Broker-Producer-Token", "p-token"}

func consumerTokens(id string) []string {
	return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Consumer-Token", id + "-token"}
}

// publish posts a message to channel c and requires 201; it returns its path.
func (p *process) publish(body string, headers ...string) string {
	p.t.Helper()
	r := certain(p.t, func() reply {
		return p.do("POST", "/channel/c/broadcast", body, append(append([]string{}, producerTokens...), headers...)...)
	}, headers)
	require.Equal(p.t, 201, r.status, r.body)
	return r.header.Get("Location")
}

// tryPublish posts a message and reports whether it was acknowledged.
func (p *process) tryPublish(body string, headers ...string) bool {
	r, err := p.try("POST", "/channel/c/broadcast", body, append(append([]string{}, producerTokens...), headers...)...)
	return err == nil && r.status == 201
}

// queued lists the queued jobs of a pull consumer.
func (p *process) queued(consumer string, query ...string) []map[string]any {
	p.t.Helper()
	path := "/channel/c/consumer/" + consumer + "/queued-jobs"
	if len(query) > 0 {
		path += "?" + query[0]
	}
	r := p.do("GET", path, "", consumerTokens(consumer)...)
	require.Equal(p.t, 200, r.status, r.body)
	var page struct{ Result []map[string]any }
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &page))
	return page.Result
}

// move asks for a transition of a job of a pull consumer.
func (p *process) move(consumer, job, body string, headers ...string) reply {
	p.t.Helper()
	return p.do("POST", "/channel/c/consumer/"+consumer+"/job/"+job, body,
		append(consumerTokens(consumer), append([]string{"Content-Type", "application/json"}, headers...)...)...)
}

// eventually waits for a condition that other processes bring about. The longer it waits, the less
// often it asks: each question takes processor time from the brokers of all tests.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for begun := time.Now(); !condition(); {
		waited := time.Since(begun)
		if waited > patience {
			t.Fatalf("waited %v for: %s", patience, what)
		}
		time.Sleep(min(max(waited/25, 20*time.Millisecond), 200*time.Millisecond))
	}
}

// A sink is a push consumer that remembers what it got.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	byBody map[string]int
	answer func(n int, r received) int // status for the n-th request, from 1

	open  atomic.Int64 // requests that were not answered yet
	conns atomic.Int64 // connections
	known sync.Map     // addresses of the clients of these connections
}

type received struct {
	header http.Header
	body   string
	at     time.Time
}

// newHeldSink answers with a status once it is let go, at the latest at the end of the test.
func newHeldSink(t testing.TB, status int) (s *sink, free func()) {
	release := make(chan struct{})
	s = newSink(t, func(int, received) int { <-release; return status })
	free = sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // before the sink is closed, which waits for its requests
	return s, free
}

// newSink answers with answer, or 204 when it is nil.
func newSink(t testing.TB, answer func(n int, r received) int) *sink {
	s := &sink{byBody: map[string]int{}, answer: answer}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.open.Add(1)
		defer s.open.Add(-1)
		body, err := readText(r.Body, r.ContentLength)
		if err != nil {
			return
		}
		rec := received{r.Header.Clone(), body, time.Now()}
		s.mu.Lock()
		s.got = append(s.got, rec)
		s.byBody[rec.body]++
		n := len(s.got)
		s.mu.Unlock()
		status := http.StatusNoContent
		if s.answer != nil {
			status = s.answer(n, rec)
		}
		w.WriteHeader(status)
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.conns.Add(1)
			s.known.Store(c.RemoteAddr().String(), true)
		case http.StateClosed, http.StateHijacked:
			s.conns.Add(-1)
			s.known.Delete(c.RemoteAddr().String()) // a later connection may have it again
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// awaitClosed waits until the sink has read all that its clients, who are gone, have sent.
// Their last connections may still wait to be accepted. The kernel hands them over in their
// order, so a connection that is made now comes behind them.
func (s *sink) awaitClosed(t testing.TB) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	eventually(t, "the sink to accept the connections of its clients", func() bool {
		_, known := s.known.Load(c.LocalAddr().String())
		return known
	})
	require.NoError(t, c.Close())
	eventually(t, "the sink to have read all that was sent", func() bool { return s.conns.Load() == 0 })
}

func (s *sink) all() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// distinct is the number of different bodies received.
func (s *sink) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byBody)
}

// counts is how often each body was received.
func (s *sink) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byBody)
}

// hasAll reports whether each of the bodies was received.
func (s *sink) hasAll(bodies []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(bodies, func(body string) bool { return s.byBody[body] == 0 })
}

// times returns how often a body was received.
func (s *sink) times(body string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byBody[body]
}

// jobsOf returns how many jobs of a body were received, of any body for "". A delivery that is
// repeated, as on a busy machine, is of the same job.
func (s *sink) jobsOf(body string) int {
	jobs := map[string]bool{}
	for _, r := range s.all() {
		if body == "" || r.body == body {
			jobs[r.header.Get("X-Broker-Job-ID")] = true
		}
	}
	return len(jobs)
}

// A syncBuffer is a bytes.Buffer for a process to write to while we read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A load publishes numbered messages from several connections until told to
// stop, and remembers which were acknowledged.
type load struct {
	mu    sync.Mutex
	acked []string
	stop  chan struct{}
	wg    sync.WaitGroup
}

// startLoad publishes to whichever of the processes answers, at most limit messages.
func startLoad(limit int, targets func() []*process) *load {
	l := &load{stop: make(chan struct{})}
	next := make(chan int)
	l.wg.Go(func() {
		defer close(next)
		for i := range limit {
			select {
			case next <- i:
			case <-l.stop:
				return
			}
		}
	})
	for worker := range 16 {
		l.wg.Go(func() {
			for i := range next {
				body := "m-" + strconv.Itoa(i)
				// A producer that wants certainty repeats with the same ID: a
				// duplicate is then an acknowledgement as well.
				for try := 0; ; try++ {
					ps := targets()
					p := ps[(worker+try)%len(ps)]
					r, err := p.try("POST", "/channel/c/broadcast", body, append(append([]string{}, producerTokens...),
						"X-Broker-Message-ID", fmt.Sprintf("id-%d", i))...)
					if err == nil && r.stored() {
						l.mu.Lock()
						l.acked = append(l.acked, body)
						l.mu.Unlock()
						break
					}
					select {
					case <-l.stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
		})
	}
	return l
}

// finish stops publishing and returns the acknowledged bodies.
func (l *load) finish() []string {
	close(l.stop)
	l.wg.Wait()
	return l.acked
}

// wait lets the load run to its limit.
func (l *load) wait() []string {
	l.wg.Wait()
	return l.acked
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// ownMySQLWorld has a MySQL of its own, which the test may kill.
func ownMySQLWorld(t testing.TB) *world {
	mysql, redis := servers.StartMySQL(t), servers.StartRedis(t)
	return &world{t: t, redis: redis, mysql: mysql, env: []string{"BROKER_MYSQL_DSN=" + mysql.DSN(), "BROKER_REDIS_URL=" +
		redis.URL()}}
}

// flushall empties the world's Redis.
func (w *world) flushall() {
	w.t.Helper()
	u, err := url.Parse(w.redis.URL())
	require.NoError(w.t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(w.t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("FLUSHALL\r\n"))
	require.NoError(w.t, err)
	answer := make([]byte, 5)
	_, err = io.ReadFull(conn, answer)
	require.NoError(w.t, err)
	require.Equal(w.t, "+OK\r\n", string(answer))
}
