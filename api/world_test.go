package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/audit"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/consumerstate"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/internal/test/traffic"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/redisq"
)

// secret is part of every token in these tests: no refusal and no log line may
// hold it.
const secret = "s3cret"

// millis is the format of times of messages and jobs.
const millis = "2006-01-02T15:04:05.000Z07:00"

const (
	adminToken = secret + "-admin"
	formHeader = "Content-Type: " + formType
)

// logs collects what the tests log; safe for concurrent use.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestMain(m *testing.M) {
	all := &logs{}
	slog.SetDefault(slog.New(slog.NewTextHandler(all, &slog.HandlerOptions{Level: slog.LevelDebug})))
	code := m.Run()
	for _, word := range []string{secret, "SELECT", "INSERT INTO"} {
		if strings.Contains(all.String(), word) {
			fmt.Fprintf(os.Stderr, "the log holds %q:\n%s\n", word, all.String())
			code = 1
		}
	}
	if differ := differences(); len(differ) > 0 {
		fmt.Fprintf(os.Stderr, "openapi.json does not say (describe.go of package openapi):\n%s\n", strings.Join(differ,
			"\n"))
		code = 1
	}
	http.DefaultClient.CloseIdleConnections()
	// fasthttp's own caretakers notice within ten seconds that their server or
	// client is gone, and its clock belongs to the process.
	err := goleak.Find(
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
	)
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A world is a broker's control plane on a real embedded store and queue.
type world struct {
	t       *testing.T
	dir     string
	store   *durable.Store
	mini    *miniredis.Miniredis
	queue   *redisq.Queue
	cat     *catalogue.Catalogue
	service *jobs.Service
	ahead   time.Duration // of the clock of states
	states  *consumerstate.Keeper
	api     *API
	reg     *prometheus.Registry
	node    durable.NodeLease
	ids     *ident.Generator

	trial chan push.Trial // of the next test of a consumer

	mu        sync.Mutex
	announced int
	data      []string // calls of the data plane

	client *fasthttp.HostClient
	server *fasthttp.Server
	via    *way                       // that requests take instead of client; nil: they do not
	then   func(path string, r reply) // called after each successful GET, unless by itself; may be nil
}

// A door says what it is asked for.
type door struct{}

func (door) Write(channel string, limit int) ([]byte, error) {
	if channel == "nowhere" {
		return nil, catalogue.ErrUnknownChannel
	}
	return fmt.Appendf(nil, "# %q %d\n", channel, limit), nil
}

// An sqsDoor answers whether management is open to a request.
type sqsDoor struct{}

func (sqsDoor) Serve(rc *fasthttp.RequestCtx, from sqs.Caller) {
	rc.SetContentType("application/x-amz-json-1.0")
	rc.SetBodyString(fmt.Sprintf(`{"open":%t}`, from.Open))
}

// newWorld starts an API with open management; change may alter its options.
func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	ctx := context.Background()
	w := &world{t: t, dir: t.TempDir(), mini: miniredis.RunT(t), reg: prometheus.NewRegistry(),
		trial: make(chan push.Trial, 1)}
	tables.SQLite(t, w.dir)
	var err error
	w.store, err = durable.OpenSQLite(ctx, w.dir, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.store.Close() })
	w.node, err = w.store.LeaseNode(ctx, "test", time.Hour)
	require.NoError(t, err)
	w.ids = ident.NewGenerator(w.node.No, func() int64 { return time.Now().UnixMilli() })

	client := redis.NewClient(&redis.Options{Addr: w.mini.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	w.queue = redisq.New(client, redisq.Options{})
	w.cat = catalogue.New(w.store, slog.Default())
	w.service = &jobs.Service{Store: w.store, Queue: w.queue, NowMs: func() int64 { return time.Now().UnixMilli() },
		Wake: func(uint32) {}, Dirty: func(uint32) {}}

	o := Options{
		Policies: testPolicies(),
		Store:    w.store, Catalogue: w.cat, Jobs: w.service, Auditor: &jobs.Auditor{Store: w.store,
			Queue: w.queue}, Data: (*dataPlane)(w), Bulks: (*dataPlane)(w),
		AdminToken: adminToken, OpenManagement: true, AllowDelete: true, AllowedHosts: []string{"broker"},
		RationalDelay: 2 * time.Second,
		Announce: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.announced++
		},
		PingQueue:  func(ctx context.Context) error { return client.Ping(ctx).Err() },
		Metrics:    func(rc *fasthttp.RequestCtx) { rc.SetBodyString("# metrics\n") },
		Registerer: w.reg,
		Version:    apitype.Version{Version: "1.2.3", Commit: "abc", Go: "go1"},
	}
	o.Prints = auditlog.Printer{Key: []byte("of the tests")}
	o.Portray = audit.Portray(o.Prints)
	o.Trials, o.Door, o.SQS = w, door{}, sqsDoor{}
	o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Version: "1.2.3", Bench: benchFolder(t)})
	o.Settings = []apitype.Setting{{Name: "BROKER_LISTEN", Value: "127.0.0.1:8080", Default: "127.0.0.1:8080",
		Meaning: "Address of the listener."},
		{Name: "BROKER_ADMIN_TOKEN", Set: true, Secret: true, Meaning: "Token of the admin."}}
	o.Lister = &jobs.Lister{Store: w.store, Queue: w.queue, NowMs: w.service.NowMs}
	o.Overview = &jobs.Overview{Store: w.store, Queue: w.queue}
	o.Responses = &exchange.Reader{Store: w.store, Policies: o.Policies, Most: 1}
	w.states = consumerstate.New(consumerstate.Options{Store: w.store, Catalogue: w.cat, Announce: o.Announce,
		NowMs: func() int64 { return time.Now().Add(w.ahead).UnixMilli() }, PublicURL: publicURL, Log: slog.Default()})
	o.States = w.states
	o.Why = why.New(why.Options{Store: w.store, Queue: w.queue, Catalogue: w.cat, Policies: o.Policies,
		NowMs: func() int64 { return time.Now().UnixMilli() }, NoWorkerAfter: time.Minute, RationalDelay: time.Hour})
	if change != nil {
		change(&o)
	}
	w.api = New(o)
	w.serve()
	return w
}

// Try is a test of a consumer, whose end the test sends to w.trial.
func (w *world) Try(*durable.Consumer) (<-chan push.Trial, error) { return w.trial, nil }

func (w *world) serve() {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // as the broker listens: only TCP lingers after a refusal
	require.NoError(w.t, err)
	s := NewServer(w.api.Handler, ServerOptions{})
	w.server = s
	done := make(chan error, 1)
	go func() { done <- s.Serve(Listen(ln, nil)) }()
	w.client = &fasthttp.HostClient{
		Addr: "broker", DisablePathNormalizing: true, MaxIdemponentCallAttempts: 1, MaxConns: 1000,
		Dial:      func(string) (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) },
		Transport: traffic.Fasthttp(w.madeUp),
	}
	w.t.Cleanup(func() {
		w.client.CloseIdleConnections()
		require.NoError(w.t, s.Shutdown())
		require.NoError(w.t, <-done)
	})
}

// madeUp reports whether the test answers a request, and not the broker.
func (w *world) madeUp(method, path string) bool {
	if _, fake := w.api.o.Data.(*dataPlane); !fake {
		return false
	}
	r := routeTaking(method, path)
	return r != nil && (r.data != nil || r.Access == AccessSQS || r.Path == "/channel/{channel}/bulk")
}

// dataPlane records which handler ran, with the path parameters it was given.
type dataPlane world

func (d *dataPlane) note(rc *fasthttp.RequestCtx, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = append(d.data, fmt.Sprintf("%s %v %v %v", name, rc.UserValue("channel"), rc.UserValue("consumer"),
		rc.UserValue("job")))
	rc.SetStatusCode(fasthttp.StatusAccepted)
}

func (d *dataPlane) Request(rc *fasthttp.RequestCtx)                    { d.note(rc, "request") }
func (d *dataPlane) BroadcastBatch(rc *fasthttp.RequestCtx)             { d.note(rc, "batch") }
func (d *dataPlane) ClaimJobs(rc *fasthttp.RequestCtx, _ intake.Limit)  { d.note(rc, "claim") }
func (d *dataPlane) UpdateJobs(rc *fasthttp.RequestCtx, _ intake.Limit) { d.note(rc, "jobs") }
func (d *dataPlane) Broadcast(rc *fasthttp.RequestCtx, _ string)        { d.note(rc, "broadcast") }
func (d *dataPlane) QueuedJobs(rc *fasthttp.RequestCtx, _ intake.Limit) {
	d.note(rc, "queued-jobs")
	rc.SetBodyString("{}\n")
}
func (*dataPlane) Receipt(rc *fasthttp.RequestCtx) { problem.Write(rc, errUnknownMessage) }

// Reschedule makes the message one of a day later.
func (d *dataPlane) Reschedule(rc *fasthttp.RequestCtx, _ catalogue.Standing, was *durable.Scheduled,
	c durable.ScheduleChange) (*durable.Scheduled, error) {
	c.Times = &durable.Scheduled{DueMs: was.DueMs + 86_400_000}
	return d.store.ChangeScheduled(request.Of(rc), c)
}

func (d *dataPlane) MoveJob(rc *fasthttp.RequestCtx, _ intake.Limit) { d.note(rc, "move") }

// A reply is an answer of the API.
type reply struct {
	t      *testing.T
	Status int
	Header func(string) string
	Body   string
}

// do sends a request. Each header is "Name: value".
func (w *world) do(method, path, body string, headers ...string) reply {
	w.t.Helper()
	req, resp := fasthttp.AcquireRequest(), &fasthttp.Response{}
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetNoDefaultContentType(true)
	req.Header.SetMethod(method)
	req.SetRequestURI("http://broker" + path)
	req.URI().DisablePathNormalizing = true
	req.SetBodyString(body)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	if w.via != nil {
		w.via.do(w.t, method, path, body, headers, resp)
	} else {
		require.NoError(w.t, w.client.DoTimeout(req, resp, 20*time.Second))
	}
	r := reply{w.t, resp.StatusCode(), func(name string) string { return string(resp.Header.Peek(name)) },
		string(resp.Body())}
	require.NotEmpty(w.t, r.Header("X-Request-ID"))
	compare(method, path, resp)
	require.NotContains(w.t, r.Header("Location"), secret)
	if r.Status >= 400 {
		require.NotContains(w.t, r.Body, secret, "a refusal holds a token")
		for _, word := range []string{"SELECT", "sqlite", "SQL", "panic", "goroutine", "redis"} {
			require.NotContains(w.t, strings.ReplaceAll(r.Body, r.Header("X-Request-ID"), ""), word) // random letters
		}
	}
	if then := w.then; then != nil && method == get && r.Status == 200 {
		w.then = nil
		then(path, r)
		w.then = then
	}
	return r
}

func (w *world) get(path string, headers ...string) reply {
	w.t.Helper()
	return w.do("GET", path, "", headers...)
}

func (w *world) post(path string, headers ...string) reply {
	w.t.Helper()
	return w.do("POST", path, "", headers...)
}

// formFor is a form that a PUT at path takes.
func formFor(path string) string {
	if i := strings.Index(path, "/consumer/"); i >= 0 && !strings.Contains(path[i+len("/consumer/"):], "/") {
		return "type=pull"
	}
	return ""
}

func (w *world) put(path, form string, headers ...string) reply {
	w.t.Helper()
	return w.do("PUT", path, form, append(headers, formHeader)...)
}

// json returns the body, which must be JSON and say so.
func (r reply) json() map[string]any {
	r.t.Helper()
	require.Equal(r.t, apitype.MediaJSON, r.Header("Content-Type"), "%d %s", r.Status, r.Body)
	require.True(r.t, strings.HasSuffix(r.Body, "\n"), "bodies end in a newline")
	var v map[string]any
	require.NoError(r.t, json.Unmarshal([]byte(r.Body), &v), r.Body)
	return v
}

func (r reply) is(status int) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.Status, r.Body)
	return r
}

// problem checks that the answer is a refusal with that status and code.
func (r reply) problem(status int, code string) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.Status, r.Body)
	require.Equal(r.t, "application/problem+json", r.Header("Content-Type"))
	var p apitype.Problem
	strictjson.Decode(r.t, []byte(r.Body), &p)
	require.Equal(r.t, code, p.Code)
	require.Equal(r.t, status, p.Status)
	require.NotEmpty(r.t, p.Title)
	require.NotEmpty(r.t, p.Detail)
	require.Equal(r.t, r.Header("X-Request-ID"), p.RequestID)
	return r
}

// channel creates a channel c and a producer p with tokens made of their IDs.
func (w *world) channel() {
	w.t.Helper()
	w.put("/producer/p", "name=The+Producer&token="+secret+"-p").is(201)
	w.put("/channel/c", "name=The+Channel&token="+secret+"-c").is(201)
	w.put("/group/g", "").is(201)
}

func (w *world) consumer(id, kind string) *durable.Consumer {
	w.t.Helper()
	w.put("/channel/c/consumer/"+id, "name=N+"+id+"&token="+secret+"-"+id+"&type="+kind+"&callbackUrl=http://127.0.0.1:1/"+
		id).is(201)
	return w.cat.Consumer("c", id)
}

// tokens are the two headers of a consumer of channel c.
func tokens(consumer string) []string {
	return []string{"X-Broker-Channel-Token: " + secret + "-c", "X-Broker-Consumer-Token: " + secret + "-" + consumer}
}

const adminHeader = "X-Broker-Admin-Token: " + adminToken

// insert stores a message of p in c for all its consumers.
func (w *world) insert(m durable.Message) durable.Message {
	w.t.Helper()
	m.ProducerNo = w.cat.Producer("p").No
	return w.insertInto("c", m)
}

func (w *world) insertInto(channel string, m durable.Message) durable.Message {
	w.t.Helper()
	ch := w.cat.Channel(channel)
	m.ChannelNo, m.Audience, m.Shape = ch.No, len(ch.Consumers), ch.Shape
	w.node.Known = w.cat.Version()
	for {
		m.ID = w.ids.Next()
		err := w.store.Insert(context.Background(), w.node, []*durable.Message{&m})[0]
		if errors.Is(err, durable.ErrStale) {
			continue // the test was not given its processor in time
		}
		require.NoError(w.t, err)
		return m
	}
}

// plan stores a schedule of the same producer and channel as insert. It is due in ten years.
func (w *world) plan(s durable.Scheduled) durable.Scheduled {
	w.t.Helper()
	s.ID, s.ChannelNo, s.ProducerNo, s.DueMs = w.ids.Next(), w.cat.Channel("c").No, w.cat.Producer(
		"p").No, time.Now().AddDate(10, 0, 0).UnixMilli()
	w.node.Known = w.cat.Version()
	for _, err := range w.store.Schedule(context.Background(), w.node, []*durable.Scheduled{&s}) {
		require.NoError(w.t, err)
	}
	return s
}

func (w *world) enqueue(k *durable.Consumer, m durable.Message) {
	w.t.Helper()
	_, err := w.queue.Enqueue(context.Background(), k.No, []redisq.Job{{ID: m.ID, Priority: m.Priority}}, redisq.Fresh)
	require.NoError(w.t, err)
}

func (w *world) record(o durable.Outcome) {
	w.t.Helper()
	require.NoError(w.t, w.store.Record(context.Background(), []durable.Outcome{o}))
}

// kill makes a dead letter of a job.
func (w *world) kill(k *durable.Consumer, m durable.Message) {
	w.t.Helper()
	w.record(durable.Outcome{
		Kind: durable.OutcomeDead, Reason: durable.AttemptsExhausted, ConsumerNo: k.No, ID: m.ID, Priority: m.Priority,
		Attempts: 6,
		AtMs:     time.Now().UnixMilli(), StatusCode: 500, Error: "answered 500", Answer: []byte("oops"), DurationMs: 12,
	})
}

func (w *world) waiting(k *durable.Consumer) int {
	w.t.Helper()
	s, err := w.queue.Stats(context.Background(), k.No)
	require.NoError(w.t, err)
	return s.Ready
}

// testPolicies are the policies of the test world.
func testPolicies() *policy.Book {
	return policy.NewBook(policy.Policy{Timeout: 30 * time.Second, MaxRetries: 5, Backoff: policy.Waits(5*time.Second,
		30*time.Second)})
}
