package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

const (
	// demoBound is how long the demo of responses may take. It takes four seconds on an idle machine.
	demoBound = time.Minute
	// demoWork is how long the receiver of the demo works. The broker polls after a second, and two
	// seconds later.
	demoWork = 2 * time.Second
	// demoBody is the largest body that the demo reads.
	demoBody = 1 << 20
)

// A responsesDemo is the sender and the receiver of `broker demo-responses`. Both speak only HTTP
// to the broker.
type responsesDemo struct {
	base    string // URL of the broker
	own     string // URL of the sender and the receiver
	began   time.Time
	replied chan struct{} // has a token for each reply

	mu    sync.Mutex
	out   io.Writer
	ready map[string]time.Time // path of a result -> when it is ready
}

// demoResponses runs a broker with embedded stores in a folder of its own, and shows on it how a
// response comes back. It ends by itself and returns the exit code.
func demoResponses(ctx context.Context, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, demoBound)
	defer cancel()
	folder, err := os.MkdirTemp("", "penstock-demo-")
	if err == nil {
		defer os.RemoveAll(folder)
		err = runResponsesDemo(ctx, folder, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "broker demo-responses: %v\n", sentence.Of(err))
		return exitStart
	}
	return exitClean
}

func runResponsesDemo(ctx context.Context, folder string, stdout, stderr io.Writer) error {
	cfg, err := readConfig([]string{"BROKER_LISTEN=127.0.0.1:0", "BROKER_DATA_DIR=" + folder})
	if err != nil {
		return err
	}
	b, err := openBroker(ctx, cfg, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer b.close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d := &responsesDemo{base: "http://" + b.Addr(), own: "http://" + listener.Addr().String(), began: time.Now(),
		replied: make(chan struct{}, 1), out: stdout, ready: map[string]time.Time{}}
	server := &http.Server{Handler: d, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	running, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { _ = server.Serve(listener) })
	ended := make(chan error, 1)
	parts.Go(func() { ended <- b.Run(running) })
	err = d.play(ctx)
	stop()
	died := <-ended
	_ = server.Close()
	parts.Wait()
	return errors.Join(err, died)
}

// play is the sender: it registers everything, publishes a message and waits for the response.
func (d *responsesDemo) play(ctx context.Context) error {
	c, err := penstock.New(penstock.Options{URL: d.base, ProducerID: "sender", OnlyOptions: true})
	if err != nil {
		return err
	}
	defer c.Close()
	manage := c.Manage()
	for path, fields := range map[string]penstock.Fields{
		penstock.ProducerPath("sender"): {"replyUrl": d.own + "/replies"},
		penstock.ChannelPath("reports"): nil,
	} {
		if _, _, err := manage.Put(ctx, path, fields); err != nil {
			return err
		}
	}
	if _, _, err := manage.Put(ctx, penstock.ConsumerPath("reports", "receiver"), penstock.Fields{
		"callbackUrl": d.own + "/work", "responses": "callback", "async": "true"}); err != nil {
		return err
	}
	d.say("sender    publishes %q on the channel reports", demoOrder)
	message, err := c.Publish(ctx, "reports", penstock.Message{ID: "sales-2026", Payload: []byte(demoOrder),
		ContentType: "text/plain"})
	if err != nil {
		return err
	}
	d.say("broker    201: it has the message %s", message.Location)
	select {
	case <-d.replied:
	case <-ctx.Done():
		return errors.New("no response came back in time")
	}
	responses, complete, err := c.Responses(ctx, "reports", message.MessageID, "all", demoBound)
	if err != nil {
		return err
	}
	if !complete {
		return errors.New("the broker has not noted the end of the exchange in time")
	}
	for _, r := range responses {
		d.say("sender    reads the exchange: %s is %s", r.ConsumerID, r.State)
	}
	return d.tell(ctx, manage, message.Location)
}

// demoOrder is the message of the demo.
const demoOrder = "sales of 2026"

// tell prints the timeline of the message.
func (d *responsesDemo) tell(ctx context.Context, manage *penstock.Manager, location string) error {
	var timeline apitype.Timeline
	if err := manage.Read(ctx, location+"/timeline", nil, &timeline); err != nil {
		return err
	}
	d.say("sender    reads the timeline of the message:")
	for _, e := range timeline.Result {
		d.say("            %s %-18s %s", e.At.UTC().Format("15:04:05.000"), e.Event, e.ConsumerID)
	}
	return nil
}

// ServeHTTP is the receiver under /work and /result, and the sender under /replies.
func (d *responsesDemo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, demoBody))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case r.URL.Path == "/work":
		result := "/result/" + r.Header.Get("X-Broker-Message-ID")
		d.mu.Lock()
		d.ready[result] = time.Now().Add(demoWork)
		d.mu.Unlock()
		d.say("receiver  gets %q, answers 202: the result will be at %s", body, result)
		w.Header().Set("Location", result)
		w.WriteHeader(http.StatusAccepted)
	case strings.HasPrefix(r.URL.Path, "/result/"):
		d.result(w, r.URL.Path)
	case r.URL.Path == "/replies":
		d.say("sender    gets the response %q of %s to the message %s", body, r.Header.Get("X-Broker-Consumer-ID"),
			r.Header.Get("X-Broker-In-Reply-To"))
		w.WriteHeader(http.StatusNoContent)
		select {
		case d.replied <- struct{}{}:
		default: // a reply that is sent twice
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (d *responsesDemo) result(w http.ResponseWriter, path string) {
	d.mu.Lock()
	ready, known := d.ready[path]
	d.mu.Unlock()
	switch {
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case time.Now().Before(ready):
		d.say("receiver  is asked for the result, answers 202: still at work")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
	default:
		d.say("receiver  is asked for the result, answers 200 with it")
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "a report of 42 pages")
	}
}

// say prints a line with the time since the demo began.
func (d *responsesDemo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%5.2f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
