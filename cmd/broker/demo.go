package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// The sample of `make run`. Its tokens are not secret, since the pages contain them. A broker
// with a demo listens at the address of its settings, loopback by default.
const (
	sampleProducer = "sample-producer"
	sampleChannel  = "sample-channel"
	samplePush     = "sample-push"
	samplePull     = "sample-pull"
)

// A demo is the push consumer of the sample: a server that prints its deliveries.
type demo struct {
	name     string // printed name; "": the consumer in the request
	server   *http.Server
	listener net.Listener
	wg       sync.WaitGroup
	untell   func() // removes what tells broker publish of the demo; nil: nothing

	mu  sync.Mutex // one delivery is printed at a time
	out io.Writer
}

// startDemo creates the sample resources, starts the sink and prints what to try.
func startDemo(ctx context.Context, b *broker, out io.Writer) (*demo, error) {
	d, err := startSink("127.0.0.1:0", out)
	if err != nil {
		return nil, err
	}
	d.name = samplePush
	if err := d.create(ctx, b.store); err != nil {
		d.Close()
		return nil, err
	}
	if err := b.catalogue.Refresh(ctx); err != nil {
		d.Close()
		return nil, err
	}
	base := "http://" + b.Addr()
	if d.untell, err = tellPublish(base, b.cfg.DataDir); err != nil {
		d.Close()
		return nil, err
	}
	fmt.Fprintf(out, `
The sample channel has a push consumer, which prints here what it gets, and a
pull consumer. Try, in another terminal:

  %[5]s publish %[2]s '{"hello":"world"}'

or, as any HTTP client would,

  curl -i %[1]s/channel/%[2]s/broadcast -H 'X-Broker-Channel-Token: %[2]s-token' -H 'X-Broker-Producer-ID: %[3]s' -H 'X-Broker-Producer-Token: %[3]s-token' -H 'Content-Type: application/json' -d '{"hello":"world"}'

  curl -s -X POST '%[1]s/channel/%[2]s/consumer/%[4]s/claim?limit=1' -H 'X-Broker-Channel-Token: %[2]s-token' -H 'X-Broker-Consumer-Token: %[4]s-token'

  curl -s %[1]s/channel/%[2]s/messages

`, base, sampleChannel, sampleProducer, samplePull, os.Args[0])
	return d, nil
}

// startSink starts a push consumer that prints its deliveries.
func startSink(addr string, out io.Writer) (*demo, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	d := &demo{listener: listener, out: out}
	d.server = &http.Server{Handler: d, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}
	d.wg.Go(func() { _ = d.server.Serve(listener) })
	return d, nil
}

// listen is a push consumer to try with, until ctx ends. It returns the exit code.
func listen(ctx context.Context, addr string, stdout, stderr io.Writer) int {
	d, err := startSink(addr, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "broker listen: %v\n", sentence.Of(err))
		return exitStart
	}
	fmt.Fprintf(stdout, "a push consumer listens on http://%s and prints its deliveries\n", d.listener.Addr())
	<-ctx.Done()
	d.Close()
	return exitClean
}

func (d *demo) create(ctx context.Context, store *durable.Store) error {
	put := func(id string) durable.Put {
		token := tokenOf(id)
		return durable.Put{ID: id, Token: &token}
	}
	_, _, errProducer := store.PutProducer(ctx, put(sampleProducer))
	_, _, errChannel := store.PutChannel(ctx, put(sampleChannel))
	push, pull := durable.Push, durable.Pull
	callback := "http://" + d.listener.Addr().String() + "/sample"
	_, _, errPush := store.PutConsumer(ctx, durable.ConsumerPut{Put: put(samplePush), ChannelID: sampleChannel,
		CallbackURL: &callback, Type: &push})
	_, _, errPull := store.PutConsumer(ctx, durable.ConsumerPut{Put: put(samplePull), ChannelID: sampleChannel,
		Type: &pull})
	return errors.Join(errProducer, errChannel, errPush, errPull)
}

// tokenOf is the token of a sample resource.
func tokenOf(id string) string { return id + "-token" }

// ServeHTTP prints a delivery and accepts it.
func (d *demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1024))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s got %s %s\n", cmp.Or(d.name, r.Header.Get("X-Broker-Consumer-ID"), "listener"), r.Method,
		r.URL.Path)
	for _, name := range []string{"Content-Type", "User-Agent", "X-Broker-Message-Id", "X-Broker-Message-Priority",
		"X-Broker-Attempt",
		"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(&text, "  %s: %s\n", name, v)
		}
	}
	if utf8.Valid(body) {
		fmt.Fprintf(&text, "  %s\n", body)
	} else {
		fmt.Fprintf(&text, "  %x\n", body)
	}
	d.mu.Lock()
	fmt.Fprintln(d.out, text.String())
	d.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// Close stops the sink.
func (d *demo) Close() {
	if d.untell != nil {
		d.untell()
	}
	_ = d.server.Close()
	d.wg.Wait()
}
