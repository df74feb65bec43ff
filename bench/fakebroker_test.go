package bench

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A fakeBroker keeps its promises in memory, and breaks them on demand.
type fakeBroker struct {
	url    string
	client fasthttp.Client

	// Faults, by the number of the message: every n-th, 0 never. Set before use.
	loseEvery, copyEvery, corruptEvery int
	refuseButDeliverEvery              int
	unsureEvery                        int  // 503, and stored all the same
	overloadEvery                      int  // 503 "overloaded", and not stored
	overloadLies                       bool // it is stored all the same
	delayEvery                         int  // the delivery begins late
	lastFirst                          bool // pull consumers see low priorities first
	stallAt                            int  // message that takes stallFor, and all that come meanwhile
	stallFor                           time.Duration
	damageAt                           int // message whose jobs are damaged
	damage                             func(*fakeJob)
	forgetAt                           int // message that the broker does not know any more

	mu        sync.Mutex
	ids       *ident.Generator
	count     int
	stalled   time.Time
	consumers map[string][]*fakeConsumer // by channel
	stored    map[string]bool            // channel/key

	noDelete bool     // DELETE is 405
	refused  bool     // PUT is 401
	there    []string // paths that were put and not deleted

	idle    bool // pull consumers are shown nothing
	journal bool // a channel was put with ack=journal

	timeout    time.Duration // of a delivery
	deliveries sync.WaitGroup
	slots      chan struct{}
}

type fakeConsumer struct {
	path, callback string
	pull           bool
	position       int
	mu             sync.Mutex
	queue          []*fakeJob
	dead           []string
}

type fakeJob struct {
	id, lease, messageID string
	priority             int
	contentType          string
	headers              map[string]string
	body                 []byte
	attempts             int // before the first
	done, late           bool
}

func startFakeBroker(t *testing.T) *fakeBroker {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, stop := serveFakeBroker(ln)
	t.Cleanup(stop)
	return f
}

func serveFakeBroker(ln net.Listener) (f *fakeBroker, stop func()) {
	f = &fakeBroker{
		url: "http://" + ln.Addr().String(), consumers: map[string][]*fakeConsumer{}, stored: map[string]bool{},
		ids:   ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() }),
		slots: make(chan struct{}, 32), timeout: time.Minute,
	}
	f.client.MaxIdemponentCallAttempts = 1
	server := &fasthttp.Server{Handler: f.serve, Logger: silent{}, MaxRequestBodySize: 64 << 20}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(ln) }()
	return f, func() {
		f.deliveries.Wait()
		f.client.CloseIdleConnections()
		_ = server.Shutdown()
		<-done
	}
}

// fakeServe is `broker serve` of the test binary: it serves as the environment
// says until it is terminated.
func fakeServe() int {
	if os.Getenv("BENCH_TEST") != "serve" {
		fmt.Fprintln(os.Stderr, "BROKER_NONSENSE is not a setting")
		return ExitUsage
	}
	ln, err := net.Listen("tcp", os.Getenv("BROKER_LISTEN"))
	if err != nil {
		return ExitCannotStart
	}
	_, stop := serveFakeBroker(ln)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	<-terminated
	stop()
	if os.Getenv("BENCH_TEST_LAST") != "" {
		fmt.Fprintln(os.Stderr, os.Getenv("BENCH_TEST_LAST"))
	}
	return ExitOK
}

func (f *fakeBroker) serve(rc *fasthttp.RequestCtx) {
	p := strings.Split(strings.Trim(string(rc.Path()), "/"), "/")
	method := string(rc.Method())
	switch {
	case len(p) == 1 && p[0] == "readyz":
	case len(p) == 1 && p[0] == "version":
		rc.SetBodyString(`{"Version":"fake"}`)
	case method == "DELETE":
		f.delete(rc)
	case method == "PUT" && len(p) == 4:
		f.putConsumer(rc, p)
	case method == "PUT" && f.refused:
		rc.SetStatusCode(401)
	case method == "PUT":
		f.mu.Lock()
		f.there = append(f.there, string(rc.Path()))
		f.journal = f.journal || string(rc.PostArgs().Peek("ack")) == "journal"
		f.mu.Unlock()
		rc.SetStatusCode(201)
	case len(p) == 3 && p[2] == "broadcast":
		f.broadcast(rc, p[1])
	case len(p) == 3 && p[2] == "batch":
		f.batch(rc, p[1])
	case len(p) >= 5 && p[2] == "consumer":
		f.consumer(rc, p)
	case len(p) == 4 && p[2] == "message":
		f.message(rc, p[1], p[3])
	default:
		rc.SetStatusCode(404)
	}
}

// delete deletes a resource, consumers before their channel.
func (f *fakeBroker) delete(rc *fasthttp.RequestCtx) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := string(rc.Path())
	switch {
	case f.noDelete:
		rc.SetStatusCode(405)
	case slices.ContainsFunc(f.there, func(other string) bool { return strings.HasPrefix(other, path+"/consumer/") }):
		rc.SetStatusCode(409)
	case !slices.Contains(f.there, path):
		rc.SetStatusCode(404)
	default:
		f.there = slices.DeleteFunc(f.there, func(other string) bool { return other == path })
		rc.SetStatusCode(204)
	}
}

// left is what was put and not deleted.
func (f *fakeBroker) left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.there)
}

func (f *fakeBroker) putConsumer(rc *fasthttp.RequestCtx, p []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.there = append(f.there, string(rc.Path()))
	args := rc.PostArgs()
	f.consumers[p[1]] = append(f.consumers[p[1]], &fakeConsumer{
		path: "/" + strings.Join(p, "/"), callback: string(args.Peek("callbackUrl")),
		pull: string(args.Peek("type")) == "pull", position: len(f.consumers[p[1]]),
	})
	rc.SetStatusCode(201)
}

func (f *fakeBroker) broadcast(rc *fasthttp.RequestCtx, channel string) {
	h := &rc.Request.Header
	if len(h.Peek("X-Broker-Channel-Token")) == 0 || len(h.Peek("X-Broker-Producer-Token")) == 0 {
		rc.SetStatusCode(403)
		return
	}
	headers := map[string]string{}
	for _, name := range strings.Split(string(h.Peek("X-Broker-Metadata-Headers")), ", ") {
		if name != "" {
			headers[name] = string(h.Peek(name))
		}
	}
	if key := h.Peek(orderingHeader); len(key) > 0 {
		headers[orderingHeader] = string(key)
	}
	priority, _ := strconv.Atoi(string(h.Peek("X-Broker-Message-Priority")))
	status, location, code := f.store(channel, string(h.Peek("X-Broker-Message-ID")), &fakeJob{
		priority: priority, contentType: string(h.ContentType()), headers: headers, body: bytes.Clone(rc.PostBody()),
	})
	if f.journalled(status) {
		status, location = 202, "/receipt/1-0-1"
	}
	rc.SetStatusCode(status)
	if code != "" {
		fmt.Fprintf(rc, "{\"code\":%q}\n", code)
	}
	rc.Response.Header.Set("Location", location)
}

// journalled reports whether a stored message is answered with a receipt: every second one is on a
// channel with ack=journal.
func (f *fakeBroker) journalled(status int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal && status == 201 && f.count%2 == 0
}

// taken is the number of messages that came so far.
func (f *fakeBroker) taken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// store takes a message, of which m has the contents, and returns the answer, with
// the code of an error that has one.
func (f *fakeBroker) store(channel, key string, m *fakeJob) (status int, location, errorCode string) {
	f.mu.Lock()
	f.count++
	n := f.count
	if n == f.stallAt {
		f.stalled = time.Now().Add(f.stallFor)
	}
	wait := time.Until(f.stalled)
	if key != "" && f.stored[channel+"/"+key] {
		f.mu.Unlock()
		return 409, "/channel/" + channel + "/message/" + key, "duplicate_message_id"
	}
	hits := func(every int) bool { return every > 0 && n%every == 0 }
	if hits(f.overloadEvery) && !f.overloadLies {
		f.mu.Unlock()
		return 503, "", "overloaded"
	}
	f.stored[channel+"/"+key] = true
	id := f.ids.Next()
	consumers := f.consumers[channel]
	f.mu.Unlock()
	time.Sleep(wait)
	public := id.String()
	if key != "" {
		public = key
	}
	if !hits(f.loseEvery) {
		if hits(f.corruptEvery) {
			m.body[len(m.body)-1] ^= 1
		}
		for _, k := range consumers {
			for range 1 + btoi(hits(f.copyEvery)) {
				j := *m
				j.late = hits(f.delayEvery)
				j.id, j.messageID = id.Job(k.position).String(), public
				if f.damage != nil && n == f.damageAt {
					j.headers = maps.Clone(j.headers)
					f.damage(&j)
				}
				f.enqueue(k, &j)
			}
		}
	}
	switch {
	case hits(f.refuseButDeliverEvery):
		return 400, "", ""
	case hits(f.unsureEvery):
		return 503, "", ""
	case hits(f.overloadEvery):
		return 503, "", "overloaded"
	}
	return 201, "/channel/" + channel + "/message/" + public, ""
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *fakeBroker) enqueue(k *fakeConsumer, j *fakeJob) {
	if k.pull {
		k.mu.Lock()
		k.queue = append(k.queue, j)
		k.mu.Unlock()
		return
	}
	f.deliveries.Go(func() {
		if j.late {
			time.Sleep(50 * time.Millisecond)
		}
		f.slots <- struct{}{}
		defer func() { <-f.slots }()
		for range 6 {
			req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			req.SetRequestURI(k.callback)
			req.Header.SetMethod("POST")
			req.Header.Set("X-Broker-Message-ID", j.messageID)
			req.Header.Set("X-Broker-Attempt", strconv.Itoa(j.attempts+1))
			req.Header.SetContentType(j.contentType)
			for name, value := range j.headers {
				req.Header.Set(name, value)
			}
			req.SetBodyRaw(j.body)
			err := f.client.DoTimeout(req, res, f.timeout)
			ok := err == nil && res.StatusCode() < 300
			if err == nil {
				fasthttp.ReleaseRequest(req)
				fasthttp.ReleaseResponse(res)
			}
			if ok {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		k.mu.Lock()
		k.dead = append(k.dead, j.id)
		k.mu.Unlock()
	})
}

func (f *fakeBroker) batch(rc *fasthttp.RequestCtx, channel string) {
	var out bytes.Buffer
	for text := range bytes.Lines(rc.PostBody()) {
		var line struct {
			MessageID, Payload, PayloadBase64, ContentType string
			Priority                                       int
			Headers                                        map[string]string
		}
		if err := json.Unmarshal(text, &line); err != nil {
			fmt.Fprintln(&out, `{"Status":400,"code":"invalid_line"}`)
			continue
		}
		body := []byte(line.Payload)
		if line.PayloadBase64 != "" {
			body, _ = base64.StdEncoding.DecodeString(line.PayloadBase64)
		}
		status, location, code := f.store(channel, line.MessageID, &fakeJob{
			priority: line.Priority, contentType: line.ContentType, headers: line.Headers, body: body,
		})
		fmt.Fprintf(&out, "{\"Status\":%d,\"Location\":%q,\"code\":%q}\n", status, location, code)
	}
	rc.SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.Write(out.Bytes()) }) // chunked
}

func (f *fakeBroker) consumer(rc *fasthttp.RequestCtx, p []string) {
	f.mu.Lock()
	list := f.consumers[p[1]]
	f.mu.Unlock()
	i := slices.IndexFunc(list, func(k *fakeConsumer) bool { return strings.HasSuffix(k.path, "/"+p[3]) })
	if i < 0 || len(rc.Request.Header.Peek("X-Broker-Consumer-Token")) == 0 {
		rc.SetStatusCode(403)
		return
	}
	k := list[i]
	k.mu.Lock()
	defer k.mu.Unlock()
	limit, _ := strconv.Atoi(string(rc.QueryArgs().Peek("limit")))
	switch p[4] {
	case "dlq":
		type dead struct{ ID, MessageURL string }
		page := struct{ DeadJobs []dead }{}
		for _, id := range k.dead {
			page.DeadJobs = append(page.DeadJobs, dead{id, ""})
		}
		answerJSON(rc, page)
	case "queued-jobs", "claim":
		f.listJobs(rc, k, limit, p[4] == "claim")
	case "job":
		f.moveJob(rc, k, p[5])
	case "jobs":
		var in struct {
			Updates []struct{ ID, Lease string }
		}
		_ = json.Unmarshal(rc.PostBody(), &in)
		var out struct{ Result []map[string]any }
		for _, u := range in.Updates {
			for _, j := range k.queue {
				if j.id == u.ID && j.lease == u.Lease {
					j.done = true
				}
			}
			out.Result = append(out.Result, map[string]any{"ID": u.ID, "Status": 202})
		}
		k.forget()
		answerJSON(rc, out)
	}
}

// forget drops what is done; the queue would grow for ever.
func (k *fakeConsumer) forget() {
	k.queue = slices.DeleteFunc(k.queue, func(j *fakeJob) bool { return j.done })
}

// message tells of jobs that pull consumers have not finished; push jobs are
// over as far as this broker knows.
func (f *fakeBroker) message(rc *fasthttp.RequestCtx, channel, id string) {
	f.mu.Lock()
	list := f.consumers[channel]
	f.mu.Unlock()
	type job struct {
		ConsumerID, Status string
		Attempts           int
	}
	view := struct {
		Status string
		Jobs   []job
	}{Status: "DISPATCHED"}
	if f.forgetAt > 0 && strings.HasSuffix(id, "-"+strconv.Itoa(f.forgetAt)) {
		rc.SetStatusCode(404)
		return
	}
	for _, k := range list {
		k.mu.Lock()
		status := "DELIVERED"
		for _, j := range k.queue {
			if j.messageID == id {
				status = "QUEUED"
			}
		}
		k.mu.Unlock()
		view.Jobs = append(view.Jobs, job{k.path[strings.LastIndexByte(k.path, '/')+1:], status, 1})
	}
	answerJSON(rc, view)
}

func (f *fakeBroker) listJobs(rc *fasthttp.RequestCtx, k *fakeConsumer, limit int, claim bool) {
	slices.SortStableFunc(k.queue, func(a, b *fakeJob) int {
		if f.lastFirst {
			return a.priority - b.priority
		}
		return b.priority - a.priority
	})
	out := struct{ Result []map[string]any }{Result: []map[string]any{}}
	for _, j := range k.queue {
		if f.idle || j.lease != "" || len(out.Result) == limit {
			continue
		}
		m := map[string]any{"MessageID": j.messageID, "Payload": base64.StdEncoding.EncodeToString(j.body),
			"PayloadEncoding": "base64", "Headers": j.headers, "ContentType": j.contentType}
		job := map[string]any{"ID": j.id, "Attempts": j.attempts, "Message": m}
		if claim {
			j.lease = "lease-" + j.id
			job["Lease"] = j.lease
		}
		out.Result = append(out.Result, job)
	}
	answerJSON(rc, out)
}

func (f *fakeBroker) moveJob(rc *fasthttp.RequestCtx, k *fakeConsumer, id string) {
	i := slices.IndexFunc(k.queue, func(j *fakeJob) bool { return j.id == id && !j.done })
	if i < 0 {
		rc.SetStatusCode(400)
		return
	}
	rc.SetStatusCode(202)
	if bytes.Contains(rc.PostBody(), []byte("DELIVERED")) {
		k.queue[i].done = true
		k.forget()
		return
	}
	if k.queue[i].lease == "" {
		k.queue[i].lease = "lease-" + id
		rc.Response.Header.Set("X-Broker-Lease", k.queue[i].lease)
	}
}

func answerJSON(rc *fasthttp.RequestCtx, v any) {
	b, _ := json.Marshal(v)
	rc.SetBody(b)
}
