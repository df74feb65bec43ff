package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

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
	for _, put := range []struct {
		path string
		form url.Values
	}{
		{"/producer/sender", url.Values{"token": {"sender-token"}, "replyUrl": {d.own + "/replies"}}},
		{"/channel/reports", url.Values{"token": {"reports-token"}}},
		{"/channel/reports/consumer/receiver", url.Values{"token": {"receiver-token"}, "callbackUrl": {d.own + "/work"},
			"responses": {"callback"}, "async": {"true"}}},
	} {
		if _, _, err := d.ask(ctx, http.MethodPut, put.path, apitype.MediaForm, put.form.Encode()); err != nil {
			return err
		}
	}
	d.say("sender    publishes %q on the channel reports", demoOrder)
	_, location, err := d.ask(ctx, http.MethodPost, "/channel/reports/broadcast", "text/plain", demoOrder)
	if err != nil {
		return err
	}
	d.say("broker    201: it has the message %s", location)
	select {
	case <-d.replied:
	case <-ctx.Done():
		return errors.New("no response came back in time")
	}
	responses, err := d.complete(ctx, location)
	if err != nil {
		return err
	}
	for _, r := range responses.Result {
		d.say("sender    reads the exchange: %s is %s", r.ConsumerID, r.State)
	}
	return d.tell(ctx, location)
}

// complete reads the responses to the message until the broker has noted that the sender has them all.
func (d *responsesDemo) complete(ctx context.Context, location string) (v apitype.Responses, err error) {
	for {
		body, _, err := d.ask(ctx, http.MethodGet, location+"/responses", "", "")
		if err != nil {
			return v, err
		}
		v = apitype.Responses{}
		if err := json.Unmarshal(body, &v); err != nil || v.Complete {
			return v, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return v, errors.New("the broker has not noted the end of the exchange in time")
		}
	}
}

// demoOrder is the message of the demo.
const demoOrder = "sales of 2026"

// tell prints the timeline of the message.
func (d *responsesDemo) tell(ctx context.Context, location string) error {
	body, _, err := d.ask(ctx, http.MethodGet, location+"/timeline", "", "")
	if err != nil {
		return err
	}
	var timeline apitype.Timeline
	if err := json.Unmarshal(body, &timeline); err != nil {
		return err
	}
	d.say("sender    reads the timeline of the message:")
	for _, e := range timeline.Result {
		d.say("            %s %-18s %s", e.At.UTC().Format("15:04:05.000"), e.Event, e.ConsumerID)
	}
	return nil
}

// demoClient goes to the broker of the demo alone.
var demoClient = &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

// ask sends a request of the sender to the broker. An answer other than 2xx is an error.
func (d *responsesDemo) ask(ctx context.Context, method, path, contentType, body string) (answer []byte,
	location string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("X-Broker-Channel-Token", "reports-token")
	req.Header.Set("X-Broker-Producer-ID", "sender")
	req.Header.Set("X-Broker-Producer-Token", "sender-token")
	resp, err := demoClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, demoBody))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, resp.Header.Get("Location"), err
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
