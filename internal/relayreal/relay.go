//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	publishers  = 8
	contentType = "application/json"

	// patience bounds the wait for the last arrival.
	patience = 60 * time.Second
	// quiet is how long nothing more may come: longer than the rational delay
	// and a sweep of the fail-safe, which is who would send a copy.
	quiet = 5 * time.Second
)

// The resources of the trial; a token is the ID with "-token" behind it.
const (
	producerID = "github"
	channelID  = "webhooks"
	pushID     = "push"
	pullID     = "pull"
)

// relay sends all examples through a new broker and books what arrives.
func relay(ctx context.Context, binary string, env []string, examples []example) (r result, err error) {
	push, pull := newLedger(pushID, examples), newLedger(pullID, examples)
	sink, err := startSink(push)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	b, err := startBroker(ctx, binary, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.create(ctx, sink.url); err != nil {
		return r, err
	}

	start := time.Now()
	// The pull consumer works while messages come in, as it would.
	working, stopPulling := context.WithCancel(ctx)
	defer stopPulling()
	pulling, pullCtx := errgroup.WithContext(working)
	for range pullers {
		pulling.Go(func() error { return b.pull(pullCtx, pull) })
	}
	if r.published, err = b.publishAll(ctx, examples); err != nil {
		return r, err
	}
	await(pullCtx, func() bool { return push.arrived() >= len(examples) && pull.arrived() >= len(examples) })
	r.took = time.Since(start)
	select {
	case <-pullCtx.Done():
	case <-time.After(quiet):
	}
	stopPulling()
	if err := pulling.Wait(); err != nil {
		return r, err
	}
	if r.deviations, err = b.judge(ctx, examples); err != nil {
		return r, err
	}
	r.push, r.pull = push.close(), pull.close()
	return r, nil
}

// create makes one producer, one channel and its two consumers.
func (b *broker) create(ctx context.Context, callback string) error {
	header := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for _, resource := range []struct {
		path   string
		fields url.Values
	}{
		{"/producer/" + producerID, url.Values{"token": {producerID + "-token"}}},
		{"/channel/" + channelID, url.Values{"token": {channelID + "-token"}}},
		{consumerPath(pushID), url.Values{"token": {pushID + "-token"}, "callbackUrl": {callback}}},
		{consumerPath(pullID), url.Values{"token": {pullID + "-token"}, "type": {"pull"}}},
	} {
		if err := b.want(ctx, http.StatusCreated, http.MethodPut, resource.path, []byte(resource.fields.Encode()), header, nil); err != nil {
			return err
		}
	}
	return nil
}

func consumerPath(id string) string { return "/channel/" + channelID + "/consumer/" + id }

// publishAll posts every example and returns how many were answered 201.
func (b *broker) publishAll(ctx context.Context, examples []example) (int, error) {
	var stored atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(publishers)
	for _, e := range examples {
		g.Go(func() error {
			err := b.want(ctx, http.StatusCreated, http.MethodPost, "/channel/"+channelID+"/broadcast", e.body, map[string]string{
				"Content-Type":              contentType,
				"X-Broker-Channel-Token":    channelID + "-token",
				"X-Broker-Producer-ID":      producerID,
				"X-Broker-Producer-Token":   producerID + "-token",
				"X-Broker-Message-ID":       e.id,
				"X-Broker-Metadata-Headers": eventHeader + ", " + deliveryHeader,
				eventHeader:                 e.event,
				deliveryHeader:              e.delivery,
			}, nil)
			if err != nil {
				return fmt.Errorf("publish %s: %w", e.id, err)
			}
			stored.Add(1)
			return nil
		})
	}
	err := g.Wait()
	return int(stored.Load()), err
}

// await waits for the condition, the end of ctx, or patience.
func await(ctx context.Context, condition func() bool) {
	end := time.Now().Add(patience)
	for !condition() && ctx.Err() == nil && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
}

// judge asks the broker: each message must have two delivered jobs with one
// attempt each, and no consumer a dead letter.
func (b *broker) judge(ctx context.Context, examples []example) (deviations []string, err error) {
	for _, e := range examples {
		var m struct {
			Status string
			Jobs   []struct {
				ConsumerID, Status string
				Attempts           int
			}
		}
		if err := b.want(ctx, http.StatusOK, http.MethodGet, "/channel/"+channelID+"/message/"+e.id, nil, nil, &m); err != nil {
			return nil, err
		}
		if m.Status != "DISPATCHED" || len(m.Jobs) != 2 {
			deviations = append(deviations, fmt.Sprintf("%s is %s with %d jobs", e.id, m.Status, len(m.Jobs)))
		}
		for _, j := range m.Jobs {
			if j.Status != "DELIVERED" || j.Attempts != 1 {
				deviations = append(deviations, fmt.Sprintf("the job of %s for %s is %s with %d attempts", e.id, j.ConsumerID, j.Status, j.Attempts))
			}
		}
	}
	for _, consumer := range []string{pushID, pullID} {
		var dlq struct{ DeadJobs []any }
		if err := b.want(ctx, http.StatusOK, http.MethodGet, consumerPath(consumer)+"/dlq", nil, nil, &dlq); err != nil {
			return nil, err
		}
		if len(dlq.DeadJobs) > 0 {
			deviations = append(deviations, consumer+" has dead letters")
		}
	}
	return deviations, nil
}

// A sink is the push consumer.
type sink struct {
	url    string
	server *http.Server
	done   chan struct{}
}

func startSink(l *ledger) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + listener.Addr().String() + "/webhook", done: make(chan struct{})}
	s.server = &http.Server{ReadHeaderTimeout: requestTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		h := r.Header
		l.add(arrival{
			id: h.Get("X-Broker-Message-ID"), body: body,
			// Join: a header that came twice is not the header that was sent.
			event: strings.Join(h.Values(eventHeader), ", "), delivery: strings.Join(h.Values(deliveryHeader), ", "),
			contentType: h.Get("Content-Type"), attempt: h.Get("X-Broker-Attempt"),
		})
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // ends with Close
	}()
	return s, nil
}

// Close stops the sink.
func (s *sink) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}
