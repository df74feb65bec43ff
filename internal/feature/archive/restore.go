package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/coding"
)

// publishers is how many messages are published at once: the broker stores them together.
const publishers = 32

// The metadata of a restored message.
const (
	headerID       = "Archived-Id"         // of the broker
	headerName     = "Archived-Message-Id" // of its producer
	headerChannel  = "Archived-Channel"
	headerProducer = "Archived-Producer"
	headerReceived = "Archived-Received-At"
)

// ErrHasConsumers means that the channel of a restoration has consumers, which would get the messages.
var ErrHasConsumers = errors.New("the channel has consumers, which would get the messages: name another one with " +
	"--channel")

// A Restoration publishes messages of the archive to a channel without consumers.
type Restoration struct {
	To      *penstock.Client
	Channel string // "": for each message that of its channel with "-restored" after it
}

// A Restored is the result.
type Restored struct{ Messages, Repeated int }

// Run publishes the messages of the files. All files are verified first: where one is damaged, it is
// ErrDamaged, and nothing is restored. A message that was restored before is not stored again.
func (r *Restoration) Run(ctx context.Context, all []*Entry) (done Restored, err error) {
	for _, e := range all {
		if err := e.Verify(ctx); err != nil {
			return done, err
		}
	}
	ready := map[string]bool{}
	for _, e := range all {
		to := r.channel(e.Channel)
		if ready[to] {
			continue
		}
		if err := r.prepare(ctx, to); err != nil {
			return done, fmt.Errorf("channel %s: %w", to, err)
		}
		ready[to] = true
	}
	for _, e := range all {
		n, err := r.file(ctx, e)
		done.Messages, done.Repeated = done.Messages+n.Messages, done.Repeated+n.Repeated
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *Restoration) channel(of string) string {
	if r.Channel != "" {
		return r.Channel
	}
	return strings.TrimPrefix(of, "~") + "-restored"
}

// prepare makes the channel, whose messages stay, or looks at the consumers of one that is there.
func (r *Restoration) prepare(ctx context.Context, channel string) error {
	m := r.To.Manage()
	var page struct{ Result []string }
	err := m.Read(ctx, penstock.ChannelPath(channel)+"/consumers", nil, &page)
	switch {
	case penstock.CodeOf(err) == "channel_not_found":
		_, _, err := m.Put(ctx, penstock.ChannelPath(channel), penstock.Fields{"retention": "0"})
		return err
	case err != nil:
		return err
	case len(page.Result) > 0:
		return ErrHasConsumers
	}
	return nil
}

// file publishes the messages of a file.
func (r *Restoration) file(ctx context.Context, e *Entry) (done Restored, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	records := make(chan *Record)
	var group sync.WaitGroup
	var mu sync.Mutex
	for range publishers {
		group.Go(func() {
			for m := range records {
				receipt, err := r.To.Publish(ctx, r.channel(e.Channel), m.message())
				if err != nil {
					stop(fmt.Errorf("message %s: %w", m.ID, err))
					continue
				}
				mu.Lock()
				if receipt.Duplicate {
					done.Repeated++
				} else {
					done.Messages++
				}
				mu.Unlock()
			}
		})
	}
	err = e.Each(ctx, func(m *Record, _ []byte) error {
		select {
		case records <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	close(records)
	group.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return done, err
}

// message is the message as it is published. Its ID is the same at each restoration.
func (r *Record) message() penstock.Message {
	m := penstock.Message{ID: "archived-" + r.ID.String(), Payload: r.Body(), ContentType: r.ContentType,
		Priority: r.Priority, Headers: map[string]string{headerID: r.ID.String(), headerName: r.MessageID,
			headerChannel: r.Channel, headerReceived: r.ReceivedAt.Format("2006-01-02T15:04:05.000Z")}}
	if r.Producer != "" {
		m.Headers[headerProducer] = r.Producer
	}
	for name, value := range r.Headers {
		switch name = http.CanonicalHeaderKey(name); name {
		case http.CanonicalHeaderKey(durable.OrderingHeader):
			m.OrderingKey = value
		case coding.Header:
			m.ContentEncoding = value
		case http.CanonicalHeaderKey(durable.TaskHeader):
			m.Task = value
		default:
			m.Headers[name] = value
		}
	}
	return m
}
