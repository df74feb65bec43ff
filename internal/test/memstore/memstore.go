// Package memstore is the little of a store that the rooms of the data plane see, in memory, for
// their tests: inserts, the catalogue of one or more channels, and node leases.
package memstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A Store keeps what is inserted. Set its exported fields before it is used, or under Lock.
type Store struct {
	sync.Mutex
	Version   int64 // of the catalogue
	Producers []durable.Producer
	Channels  []durable.Channel
	Consumers []durable.Consumer
	// OnInsert answers insert number call; nil: everything is stored.
	OnInsert func(call int, batch []*durable.Message) []error
	Gate     chan struct{} // not nil: each insert takes one value first
	Entered  atomic.Int64  // inserts begun
	Renewed  int           // renewals of node leases
	Batches  [][]durable.Message
}

// Subscribed returns a store of one channel with one push consumer, both number 1.
func Subscribed() *Store {
	return &Store{
		Version:   1,
		Channels:  []durable.Channel{{No: 1, ID: "c", Audience: 1, Version: 1}},
		Consumers: []durable.Consumer{{No: 1, ChannelNo: 1, ID: "k", Version: 1}},
	}
}

// Insert keeps a batch. Without a value from the gate until ctx ends its outcome is unknown.
func (s *Store) Insert(ctx context.Context, _ durable.NodeLease, batch []*durable.Message) []error {
	s.Entered.Add(1)
	if s.Gate != nil {
		select {
		case <-s.Gate:
		case <-ctx.Done():
			return slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
		}
	}
	s.Lock()
	defer s.Unlock()
	call := len(s.Batches)
	copied := make([]durable.Message, len(batch))
	for i, m := range batch {
		copied[i] = *m
	}
	s.Batches = append(s.Batches, copied)
	if s.OnInsert != nil {
		return s.OnInsert(call, batch)
	}
	return make([]error, len(batch))
}

// Inserted returns how many messages all inserts had, whatever became of them.
func (s *Store) Inserted() (n int) {
	s.Lock()
	defer s.Unlock()
	for _, b := range s.Batches {
		n += len(b)
	}
	return n
}

// Changes returns the resources written after a version.
func (s *Store) Changes(_ context.Context, after int64) (durable.Changes, error) {
	s.Lock()
	defer s.Unlock()
	c := durable.Changes{Version: s.Version}
	for _, p := range s.Producers {
		if p.Version > after {
			c.Producers = append(c.Producers, p)
		}
	}
	for _, ch := range s.Channels {
		if ch.Version > after {
			c.Channels = append(c.Channels, ch)
		}
	}
	for _, k := range s.Consumers {
		if k.Version > after {
			c.Consumers = append(c.Consumers, k)
		}
	}
	return c, nil
}

// Extent returns the extent of the resources.
func (s *Store) Extent(context.Context) (durable.Extent, error) {
	s.Lock()
	defer s.Unlock()
	e := durable.Extent{Version: s.Version}
	for _, p := range s.Producers {
		e.Producers.Add(p.Version)
	}
	for _, ch := range s.Channels {
		e.Channels.Add(ch.Version)
	}
	for _, k := range s.Consumers {
		e.Consumers.Add(k.Version)
	}
	return e, nil
}

// Touch makes a version without a change.
func (s *Store) Touch(context.Context, durable.Numbers) error {
	s.Lock()
	defer s.Unlock()
	s.Version++
	return nil
}

// LeaseNode leases number 3.
func (s *Store) LeaseNode(_ context.Context, _ string, ttl time.Duration) (durable.NodeLease, error) {
	return durable.NodeLease{No: 3, Token: [16]byte{1}, Expires: time.Now().Add(ttl),
		Clock: durable.Clock{FloorMs: time.Now().UnixMilli()}}, nil
}

// RenewNode extends a lease, always.
func (s *Store) RenewNode(_ context.Context, l durable.NodeLease, ttl time.Duration) (durable.NodeLease, error) {
	s.Lock()
	s.Renewed++
	s.Unlock()
	l.Expires, l.Clock.FloorMs = time.Now().Add(ttl), time.Now().UnixMilli()
	return l, nil
}

// ReleaseNode does nothing.
func (s *Store) ReleaseNode(context.Context, durable.NodeLease) error { return nil }

// Nodes knows no other broker.
func (s *Store) Nodes(context.Context) ([]durable.Node, error) { return nil, nil }
