package simulation

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// The changes of the catalogue that people make. They never fail.

// fixed returns the record whatever is stored.
func fixed(record string) func(string) (string, error) {
	return func(string) (string, error) { return record, nil }
}

// putProducer creates a producer with those settings.
func (s *store) putProducer(id, settings string) {
	must(within(s, func(ctx context.Context) (any, error) {
		_, _, err := s.PutProducer(ctx, durable.Put{ID: id, NewToken: "t-" + id, Settings: fixed(settings)})
		return nil, err
	}))
}

func (s *store) putChannel(id string) uint32 {
	return must(within(s, func(ctx context.Context) (uint32, error) {
		ch, _, err := s.PutChannel(ctx, durable.Put{ID: id, NewToken: "t-" + id})
		return ch.No, err
	}))
}

// putConsumer creates a consumer; every message that is stored later reaches it, and every one that
// is there and is newer than since, unless since is zero.
func (s *store) putConsumer(channel uint32, kind durable.ConsumerType, policy string, since ident.ID) durable.Consumer {
	return must(within(s, func(ctx context.Context) (durable.Consumer, error) {
		no := s.nextNo()
		id := fmt.Sprintf("k%d", no)
		url := "http://" + id + ".example/"
		p := durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t-" + id}, ChannelID: s.channel(channel).ID,
			CallbackURL: &url, Type: &kind, Policy: fixed(policy)}
		if since != none {
			p.Since = &since
		}
		k, _, err := s.PutConsumer(ctx, p)
		if err == nil && k.No != no {
			err = fmt.Errorf("consumer %d has the number %d", no, k.No)
		}
		return k, err
	}))
}

// setIntake says how a channel takes messages in: a record of package policy.
func (s *store) setIntake(channel uint32, record string) {
	must(within(s, func(ctx context.Context) (any, error) {
		_, _, err := s.PutChannel(ctx, durable.Put{ID: s.channel(channel).ID, Intake: fixed(record)})
		return nil, err
	}))
}

// pauseChannel pauses the intake of a channel, or resumes it.
func (s *store) pauseChannel(no uint32, paused bool) {
	must(within(s, func(ctx context.Context) (any, error) {
		_, _, err := s.SetChannelPaused(ctx, s.channel(no).ID, paused)
		return nil, err
	}))
}

// setState changes the state of a consumer, if it is in one of the states From.
func (s *store) setState(c durable.StateChange) {
	must(within(s, func(ctx context.Context) (any, error) {
		_, _, err := s.SetConsumerState(ctx, c)
		return nil, err
	}))
}

// pauseBulk pauses a bulk or resumes it, unless it is over.
func (s *store) pauseBulk(id ident.ID, paused bool) {
	_, _ = within(s, func(ctx context.Context) (any, error) { return s.PauseBulk(ctx, id, paused) })
}

// concerns reports whether a message with that audience has a job for the consumer. The
// simulation has a rule of its own, so that it finds a mistake in the rule of durable.
func concerns(id ident.ID, audience int, k durable.Consumer) bool {
	return audience > k.Position || joined(id, audience, k)
}

// joined reports whether the message is of the past of the consumer, which gets it all the same.
func joined(id ident.ID, audience int, k durable.Consumer) bool {
	return audience <= k.Position && k.Since != none && id.Compare(k.Since) > 0
}

// pastOf returns the open messages of the past, by their IDs too, that come before a job of the
// consumer's own time which is leased for the first time. For an ordered consumer there are none: the next job of a key
// is ready as soon as the one before it is over, whatever waits outside the window.
func (s *store) pastOf(consumer uint32, lease redisq.Lease) (past []ident.ID) {
	k := s.consumer(consumer)
	if lease.Attempt != 1 || k.Since == none || strings.Contains(k.Policy, `"ordered"`) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.look()
	m := p.message(k.ChannelNo, lease.ID)
	if m == nil || m.Audience <= k.Position {
		return nil
	}
	for _, old := range p.of(k.ChannelNo) {
		if joined(old.ID, old.Audience, k) && old.ID.Compare(m.ID) < 0 && old.Priority >= m.Priority &&
			p.state(jobKey{consumer, old.ID}).Status == durable.Waiting {
			past = append(past, old.ID)
		}
	}
	return past
}
