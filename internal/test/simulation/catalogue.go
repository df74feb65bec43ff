package simulation

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// putProducer creates a producer with those settings.
func (s *store) putProducer(id, settings string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.producers = append(s.producers, durable.Producer{No: uint32(len(s.producers) + 1), ID: id, Token: "t-" + id,
		Settings: settings, Version: s.version})
}

func (s *store) putChannel(id string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	no := uint32(len(s.channels) + 1)
	s.channels = append(s.channels, durable.Channel{No: no, ID: id, Token: "t-" + id, Version: s.version})
	return no
}

// putConsumer creates a consumer; every message that is stored later reaches it, and every one that
// is there and is newer than since, unless since is zero.
func (s *store) putConsumer(channel uint32, kind durable.ConsumerType, policy string, since ident.ID) durable.Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprintf("k%d", len(s.consumers)+1)
	return s.addConsumer(durable.Consumer{ChannelNo: channel, ID: id, Token: "t-" + id, CallbackURL: "http://" + id +
		".example/", Type: kind, Policy: policy, Since: since})
}

// addConsumer adds a consumer to its channel. Call it with mu held.
func (s *store) addConsumer(k durable.Consumer) durable.Consumer {
	s.version++
	ch := &s.channels[k.ChannelNo-1]
	k.No, k.Position, k.StateMs, k.Version = uint32(len(s.consumers)+1), ch.Audience, s.nowMs(), s.version
	k.ChangedAt = time.UnixMilli(k.StateMs)
	ch.Audience++
	ch.Version = s.version
	s.consumers = append(s.consumers, k)
	return k
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease.Attempt != 1 || int(consumer) > len(s.consumers) {
		return nil
	}
	k := s.consumers[consumer-1]
	m := s.message(k.ChannelNo, lease.ID)
	if k.Since == none || m == nil || m.Audience <= k.Position || strings.Contains(k.Policy, `"ordered"`) {
		return nil
	}
	for _, p := range s.messages[k.ChannelNo] {
		if joined(p.ID, p.Audience, k) && p.ID.Compare(m.ID) < 0 && p.Priority >= m.Priority &&
			s.state(jobKey{consumer, p.ID}).Status == durable.Waiting {
			past = append(past, p.ID)
		}
	}
	return past
}

// behind reports whether a consumer gets messages of the past, so that a new state of it in Redis
// begins with the past outside the window.
func (s *store) behind(consumer uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flaw != pastIsForgotten && consumer > 0 && int(consumer) <= len(s.consumers) &&
		s.consumers[consumer-1].Since != none
}

func (s *store) consumer(no uint32) durable.Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.consumers[no-1]
}

func (s *store) channel(no uint32) durable.Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[no-1]
}

// leaseNode gives the lowest number that is free.
func (s *store) leaseNode(name string, ttl time.Duration) durable.NodeLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens++
	clock := s.raise(durable.Clock{}, 0)
	now := s.nowMs()
	no := 0
	for no < len(s.nodes) && s.nodes[no].Expires.UnixMilli() > now {
		no++
	}
	lease := durable.NodeLease{No: uint16(no), Expires: time.UnixMilli(now + ttl.Milliseconds()).UTC(), Clock: clock}
	binary.BigEndian.PutUint64(lease.Token[:], s.tokens)
	n := durable.Node{No: lease.No, Name: name, Token: lease.Token, Expires: lease.Expires}
	if no == len(s.nodes) {
		s.nodes = append(s.nodes, n)
	} else {
		s.nodes[no] = n
	}
	return lease
}

// renewNode prolongs a lease until ttl from now; 0 gives it back.
func (s *store) renewNode(lease durable.NodeLease, ttl time.Duration) (durable.NodeLease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ttl > 0 { // before the row is looked at: whoever lost it in another history must notice that, too
		lease.Clock = s.raise(lease.Clock, lease.PassedMs)
	}
	if int(lease.No) >= len(s.nodes) || s.nodes[lease.No].Token != lease.Token {
		return durable.NodeLease{}, durable.ErrStale
	}
	lease.Expires = time.UnixMilli(0)
	if ttl > 0 {
		lease.Expires = time.UnixMilli(s.nowMs() + ttl.Milliseconds()).UTC()
	}
	s.nodes[lease.No].Expires = lease.Expires
	return lease, nil
}

func (s *store) readNodes() []durable.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]durable.Node(nil), s.nodes...)
	for i := range out {
		out[i].Alive = out[i].Expires.UnixMilli() > s.nowMs()
	}
	return out
}
