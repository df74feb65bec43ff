// Command driver is the client as the tests against a hostile broker run it: driver MODE OPTIONS-AS-JSON.
// Each line that it prints is one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

type options struct {
	Queue       string
	Concurrency int
	Lease       int
	Wait        int
	Timeout     int
	Count       int
	Tries       int
}

var out struct {
	sync.Mutex
	*json.Encoder
}

type line map[string]any

func say(l line) {
	out.Lock()
	defer out.Unlock()
	_ = out.Encode(l)
}

func main() { os.Exit(run()) }

func run() int {
	out.Encoder = json.NewEncoder(os.Stdout)
	o := options{Queue: "jobs", Concurrency: 4, Lease: 3, Wait: 1, Timeout: 2, Count: 10, Tries: 5}
	if len(os.Args) != 3 || json.Unmarshal([]byte(os.Args[2]), &o) != nil {
		fmt.Fprintln(os.Stderr, "Usage: driver worker|publish|batch|request OPTIONS-AS-JSON")
		return 2
	}
	// The goroutine of the package begins here, and a signal that comes after the end of the worker kills nothing.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	before := runtime.NumGoroutine()
	c, err := penstock.New(penstock.Options{Timeout: time.Duration(o.Timeout) * time.Second, Tries: o.Tries})
	if err == nil {
		err = map[string]func(*penstock.Client, options) error{"worker": work, "publish": publish, "batch": batch,
			"request": request}[os.Args[1]](c, o)
		c.Close()
	}
	left := runtime.NumGoroutine() - before
	for end := time.Now().Add(2 * time.Second); left > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		left = runtime.NumGoroutine() - before
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	say(line{"event": "end", "error": said, "left": left})
	if err != nil && os.Args[1] == "worker" {
		return 1
	}
	return 0
}

func work(c *penstock.Client, o options) error {
	w, err := c.Worker(o.Queue, penstock.WorkerOptions{Concurrency: o.Concurrency,
		Lease: time.Duration(o.Lease) * time.Second, Wait: time.Duration(o.Wait) * time.Second})
	if err != nil {
		return err
	}
	for task, f := range map[string]penstock.Handler{"ok": ok, "sleep": sleep, "hold": hold, "block": block, "fail": fail,
		"reject": reject} {
		w.Handle(task, func(ctx context.Context, d *penstock.Delivery) error {
			say(line{"event": "start", "task": d.Task, "id": d.MessageID, "attempt": d.Attempt})
			return f(ctx, d)
		})
	}
	say(line{"event": "ready"})
	return w.RunUntilSignal(context.Background())
}

func ok(_ context.Context, d *penstock.Delivery) error {
	say(line{"event": "done", "id": d.MessageID})
	return nil
}

func sleep(ctx context.Context, d *penstock.Delivery) error {
	var ms int
	if err := d.Bind(&ms); err != nil {
		return err
	}
	return until(ctx, d, time.Duration(ms)*time.Millisecond)
}

func hold(ctx context.Context, d *penstock.Delivery) error { return until(ctx, d, time.Minute) }

func until(ctx context.Context, d *penstock.Delivery, rest time.Duration) error {
	select {
	case <-time.After(rest):
		return ok(ctx, d)
	case <-ctx.Done():
	}
	event := "stopped"
	if errors.Is(context.Cause(ctx), penstock.ErrLeaseLost) {
		event = "lost"
	}
	say(line{"event": event, "id": d.MessageID})
	return context.Cause(ctx)
}

func block(ctx context.Context, d *penstock.Delivery) error {
	var ms int
	if err := d.Bind(&ms); err != nil {
		return err
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	return ok(ctx, d)
}

func fail(_ context.Context, d *penstock.Delivery) error {
	say(line{"event": "failed", "id": d.MessageID})
	return errors.New("broken on purpose")
}

func reject(_ context.Context, d *penstock.Delivery) error {
	say(line{"event": "failed", "id": d.MessageID})
	return penstock.Reject("never again")
}

func job(i int) penstock.Job {
	return penstock.Job{Task: "ok", Args: []any{i}, ID: fmt.Sprintf("m-%d", i)}
}

func told(event, id string, err error) line {
	l := line{"event": event, "error": "", "code": "", "status": 0}
	if id != "" {
		l["id"] = id
	}
	if err != nil {
		l["error"], l["code"] = err.Error(), penstock.CodeOf(err)
		if e := (*penstock.Error)(nil); errors.As(err, &e) {
			l["status"] = e.Status
		}
	}
	return l
}

func publish(c *penstock.Client, o options) error {
	for i := range o.Count {
		j := job(i)
		_, err := c.Enqueue(context.Background(), o.Queue, j)
		say(told("published", j.ID, err))
	}
	return nil
}

func batch(c *penstock.Client, o options) error {
	jobs := make([]penstock.Job, o.Count)
	for i := range jobs {
		jobs[i] = job(i)
	}
	results, _ := c.EnqueueMany(context.Background(), o.Queue, jobs)
	for _, r := range results {
		say(told("published", r.MessageID, r.Err))
	}
	return nil
}

func request(c *penstock.Client, o options) error {
	r, err := c.Request(context.Background(), o.Queue, penstock.Message{ID: "m-0", Payload: []byte("ask")}, 2*time.Second)
	l := told("answer", "", err)
	if err == nil {
		l["body"], l["status"] = string(r.Body), 200
	}
	say(l)
	return nil
}
