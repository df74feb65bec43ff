package penstock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// real returns a client of the broker at PENSTOCK_TEST_URL, or else of one that is built from this repository, and
// a queue that no other test has. Outside of the repository the test fails without a broker.
func real(t *testing.T) (*Client, string) {
	t.Helper()
	url := os.Getenv("PENSTOCK_TEST_URL")
	if url == "" {
		if _, err := os.Stat("../../cmd/broker"); err != nil {
			t.Fatal("PENSTOCK_TEST_URL names no broker, and there is none to build")
		}
		var err error
		if url, err = built(); err != nil {
			t.Fatal(err)
		}
	}
	t.Parallel()
	return at(t, Options{URL: url}), strings.ToLower(t.Name()) + "-" + newID()[30:]
}

// endBuilt ends the broker that built has started, if it has.
var endBuilt = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	endBuilt()
	os.Exit(code)
}

// built builds and runs a broker on an empty folder, once, and returns its URL.
var built = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "penstock-go-")
	if err != nil {
		return "", err
	}
	endBuilt = func() { _ = os.RemoveAll(folder) }
	program := filepath.Join(folder, "broker")
	build := exec.Command("go", "build", "-o", program, "./cmd/broker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the broker cannot be built: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	_ = l.Close()
	broker := exec.Command(program, "serve")
	broker.Env = append(os.Environ(), "BROKER_LISTEN="+addr, "BROKER_DATA_DIR="+folder)
	if err := broker.Start(); err != nil {
		return "", err
	}
	endBuilt = func() {
		_ = broker.Process.Kill()
		_ = broker.Wait()
		_ = os.RemoveAll(folder)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		res, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			return "http://" + addr, nil
		}
		if time.Now().After(end) {
			return "", err
		}
	}
})

// get reads a resource with open management.
func get(t *testing.T, c *Client, path string) map[string]any {
	t.Helper()
	var v map[string]any
	if _, err := c.managed(t.Context(), call{method: http.MethodGet, path: path}, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// put changes a resource with open management.
func put(t *testing.T, c *Client, path, form string) {
	t.Helper()
	_, err := c.managed(t.Context(), call{method: http.MethodPut, path: path, body: []byte(form),
		header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what must be true at some time.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time:", what)
		}
	}
}

// working runs a worker until the test ends. stop ends it, and returns what Run has returned.
func working(t *testing.T, w *Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error { once.Do(func() { cancel(); err = <-done }); return err }
	t.Cleanup(func() { _ = stop() })
	return stop
}

func worker(t *testing.T, c *Client, queue string, o WorkerOptions) *Worker {
	t.Helper()
	w, err := c.Worker(queue, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// jobOf is the job of a message for the consumer of its queue.
func jobOf(t *testing.T, c *Client, r Receipt) map[string]any {
	t.Helper()
	jobs, _ := get(t, c, r.Location)["Jobs"].([]any)
	if len(jobs) != 1 {
		t.Fatal(jobs)
	}
	return get(t, c, jobs[0].(map[string]any)["JobURL"].(string))
}

func TestAPublishIsStoredOnceAndShownWithItsHeaders(t *testing.T) {
	c, ch := real(t)
	m := Message{ID: "order-1", Payload: []byte{0, 0xff, '\n'}, ContentType: "image/x", Priority: 7, Task: "resize",
		Headers: map[string]string{"X-Order-Kind": "express"}, TTL: time.Hour}
	first, err := c.Publish(t.Context(), ch, m)
	if err != nil || first.Duplicate || !first.Nobody || first.Ack != "durable" {
		t.Fatal(first, err)
	}
	again, err := c.Publish(t.Context(), ch, m)
	if err != nil || !again.Duplicate || again.Location != first.Location {
		t.Fatal(again, err)
	}
	m.Payload = []byte("another")
	if _, err = c.Publish(t.Context(), ch, m); CodeOf(err) != "message_id_conflict" {
		t.Fatal(err)
	}
	shown := get(t, c, first.Location)
	headers := shown["Headers"].(map[string]any)
	if shown["Priority"] != 7. || shown["ContentType"] != "image/x" || headers["X-Order-Kind"] != "express" ||
		headers["X-Broker-Task"] != "resize" {
		t.Fatal(shown)
	}
}

func TestClientsThatStartTogetherHaveTheSameTokens(t *testing.T) {
	first, q := real(t)
	var all sync.WaitGroup
	for i := range 8 {
		c := at(t, Options{URL: first.o.URL, ProducerID: "p-" + q})
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := c.Enqueue(context.Background(), q, Job{Task: "a", Args: []any{i}}); err != nil {
				t.Error(err)
			}
			if _, err := c.keys(context.Background(), role{channel: q, consumer: q}); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
}

func TestManyMessagesGoInOneRequestAndABadOneFailsAlone(t *testing.T) {
	c, ch := real(t)
	ms := []Message{{ID: "a", Payload: []byte("1")}, {ID: "b", Payload: []byte{0xff}}, {ID: "no good"}, {ID: "a",
		Payload: []byte("1")}, {Delay: time.Hour, Payload: []byte("later")}}
	results, err := c.PublishMany(t.Context(), ch, ms)
	if CodeOf(err) != "invalid_message_id" || results[0].Err != nil || results[1].Err != nil || results[2].Err == nil ||
		!results[3].Duplicate || !strings.Contains(results[4].Location, "/scheduled-message/") {
		t.Fatal(results, err)
	}
}

func TestAWorkerDoesEachJobOnceAndReportsIt(t *testing.T) {
	c, q := real(t)
	const n = 300
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{Task: "count", Args: []any{i}, Kwargs: map[string]any{"k": i}}
	}
	if _, err := c.EnqueueMany(t.Context(), q, jobs); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen, most, now := map[int]int{}, 0, 0
	w := worker(t, c, q, WorkerOptions{Concurrency: 8})
	all := make(chan struct{})
	w.Handle("count", func(ctx context.Context, d *Delivery) error {
		var i int
		if err := d.Bind(&i); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		now--
		if seen[i]++; len(seen) == n && seen[i] == 1 {
			close(all)
		}
		return nil
	})
	stop := working(t, w)
	<-all
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i, times := range seen {
		if times != 1 {
			t.Fatal(i, times)
		}
	}
	if most > 8 {
		t.Fatal(most)
	}
	// A claim that was under way at the end may still have a lease that it gives back.
	eventually(t, "every job to be over", func() bool {
		k := get(t, c, consumerPath(q, q))
		return k["Queued"] == 0. && k["InFlight"] == 0. && k["DeadLetters"] == 0.
	})
}

func TestWhatAHandlerReturnsBecomesOfTheJob(t *testing.T) {
	c, q := real(t)
	if _, err := c.keys(t.Context(), role{channel: q, consumer: q}); err != nil {
		t.Fatal(err)
	}
	put(t, c, consumerPath(q, q), "backoff=constant:1h")
	w := worker(t, c, q, WorkerOptions{Concurrency: 4})
	errs := map[string]error{"fails": errors.New("card declined"), "rejects": Reject("never again"),
		"retries": RetryIn(time.Hour, "not yet"), "returns": GiveBack(time.Hour, "another time"), "done": nil}
	for task, err := range errs {
		w.Handle(task, func(context.Context, *Delivery) error { return err })
	}
	w.Handle("panics", func(context.Context, *Delivery) error { panic("boom") })
	receipts := map[string]Receipt{}
	for _, task := range []string{"fails", "rejects", "retries", "returns", "done", "panics", "unknown"} {
		r, err := c.Enqueue(t.Context(), q, Job{Task: task})
		if err != nil {
			t.Fatal(err)
		}
		receipts[task] = r
	}
	no, err := c.Publish(t.Context(), q, Message{Payload: []byte("no job"), Task: "done"})
	if err != nil {
		t.Fatal(err)
	}
	receipts["no job"] = no
	working(t, w)
	for task, want := range map[string]string{"fails": "QUEUED 1 0 card declined", "rejects": "DEAD 1 0 never again",
		"retries": "QUEUED 1 0 not yet", "returns": "QUEUED 0 1 <nil>", "done": "DELIVERED 1 0 <nil>",
		"panics": "QUEUED 1 0 panic: boom", "unknown": "QUEUED 0 1 <nil>",
		"no job": "DEAD 1 0 the payload is no job"} {
		got := ""
		defer func() {
			if t.Failed() {
				t.Log(task, "is", got)
			}
		}()
		eventually(t, task+": "+want, func() bool {
			j := jobOf(t, c, receipts[task])
			got = fmt.Sprintf("%v %v %v %v", j["Status"], j["Attempts"], j["GivenBack"], j["Reason"])
			return got == want
		})
	}
}

func TestALeaseIsRenewedWhileAHandlerWorks(t *testing.T) {
	c, q := real(t)
	w := worker(t, c, q, WorkerOptions{Lease: 10 * time.Second})
	over := make(chan error, 1)
	w.Handle("long", func(ctx context.Context, d *Delivery) error {
		select {
		case <-ctx.Done():
		case <-time.After(21 * time.Second):
		}
		over <- context.Cause(ctx)
		return nil
	})
	r, err := c.Enqueue(t.Context(), q, Job{Task: "long"})
	if err != nil {
		t.Fatal(err)
	}
	stop := working(t, w)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if j := jobOf(t, c, r); j["Status"] != "DELIVERED" || j["Attempts"] != 1. {
		t.Fatal(j)
	}
}

func TestAbortGivesRunningJobsBackUncounted(t *testing.T) {
	c, q := real(t)
	w := worker(t, c, q, WorkerOptions{Concurrency: 2})
	begun := make(chan struct{}, 2)
	unblock := make(chan struct{})
	w.Handle("polite", func(ctx context.Context, d *Delivery) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	w.Handle("deaf", func(ctx context.Context, d *Delivery) error {
		begun <- struct{}{}
		<-unblock
		return nil
	})
	defer close(unblock)
	var all []Receipt
	for _, task := range []string{"polite", "deaf"} {
		r, err := c.Enqueue(t.Context(), q, Job{Task: task})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	stop := working(t, w)
	<-begun
	<-begun
	w.Abort()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if j := jobOf(t, c, r); j["Status"] != "QUEUED" || j["Attempts"] != 0. || j["GivenBack"] != 1. {
			t.Fatal(j)
		}
	}
}

func TestAWorkerOfAPushConsumerSaysSo(t *testing.T) {
	c, q := real(t)
	if _, err := c.putEmpty(t.Context(), channelPath(q)); err != nil {
		t.Fatal(err)
	}
	put(t, c, consumerPath(q, q), "callbackUrl=http://127.0.0.1:9/")
	w := worker(t, c, q, WorkerOptions{})
	w.HandleOther(func(context.Context, *Delivery) error { return nil })
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "push consumer") {
		t.Fatal(err)
	}
}

// Tokens that were changed behind the client's back are read anew.
func TestTokensThatWereChangedAreReadAnew(t *testing.T) {
	c, q := real(t)
	if _, err := c.Enqueue(t.Context(), q, Job{Task: "a"}); err != nil {
		t.Fatal(err)
	}
	put(t, c, channelPath(q), "token=another")
	if _, err := c.Enqueue(t.Context(), q, Job{Task: "a"}); err != nil {
		t.Fatal(err)
	}
	given := at(t, Options{URL: c.o.URL, ChannelToken: "wrong", ConsumerToken: "wrong"})
	w := worker(t, given, q, WorkerOptions{})
	w.HandleOther(func(context.Context, *Delivery) error { return nil })
	if err := w.Run(t.Context()); CodeOf(err) != "channel_token_mismatch" || strings.Contains(err.Error(), "wrong ") {
		t.Fatal(err)
	}
}

func TestARequestGetsTheResponseOfAWorker(t *testing.T) {
	c, q := real(t)
	if _, err := c.keys(t.Context(), role{channel: q, consumer: q}); err != nil {
		t.Fatal(err)
	}
	put(t, c, consumerPath(q, q), "responses=store")
	w := worker(t, c, q, WorkerOptions{})
	w.HandleOther(func(ctx context.Context, d *Delivery) error {
		return d.Respond(ctx, "text/plain", bytes.ToUpper(d.Payload))
	})
	working(t, w)
	r, err := c.Request(t.Context(), q, Message{ID: "ask-1", Payload: []byte("hello")}, 30*time.Second)
	if err != nil || string(r.Body) != "HELLO" || r.ConsumerID != q {
		t.Fatal(r, err)
	}
	// The same request again, as after a lost answer, has the same response.
	if r, err = c.Request(t.Context(), q, Message{ID: "ask-1", Payload: []byte("hello")}, 30*time.Second); err != nil ||
		string(r.Body) != "HELLO" {
		t.Fatal(r, err)
	}
	all, complete, err := c.Responses(t.Context(), q, "ask-1", "all", time.Second)
	if err != nil || !complete || len(all) != 1 || string(all[0].Body) != "HELLO" {
		b, _ := json.Marshal(all)
		t.Fatal(string(b), complete, err)
	}
}
