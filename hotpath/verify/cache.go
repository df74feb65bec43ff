package verify

import (
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

// shards spreads the lock of the payload cache.
const shards = 16

// A Cache is the byte-bounded memory of messages that this process stored
// itself: it saves the SELECT before a delivery, and its entries carry what the
// fresh rule needs. Losing an entry is always correct, only slower.
type Cache struct {
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	byID  map[ident.ID]*entry
	order []ident.ID // oldest first; may name entries that are gone
	bytes int
	limit int
}

// An entry is a cached message. It is fresh for generation gen: every one of
// its jobs was put into Redis by this process, once, with a known reply, and
// nothing has happened to Redis since if the generation is still the same.
type entry struct {
	msg  *durable.Message
	gen  uint64 // 0: not fresh
	left int    // jobs not over
}

// NewCache returns a cache of at most limitBytes.
func NewCache(limitBytes int) *Cache {
	c := &Cache{}
	for i := range c.shards {
		c.shards[i].byID = map[ident.ID]*entry{}
		c.shards[i].limit = limitBytes / shards
	}
	return c
}

// shard picks by the sequence bytes, which differ between neighbours.
func (c *Cache) shard(id ident.ID) *shard { return &c.shards[id[9]%shards] }

// Put adds a message of which no job is over.
func (c *Cache) Put(m *durable.Message) {
	s := c.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[m.ID] = &entry{msg: m, left: m.Audience}
	s.order = append(s.order, m.ID)
	s.bytes += m.Bytes()
	for s.bytes > s.limit && len(s.order) > 0 {
		s.drop(s.order[0])
		s.order = s.order[1:]
	}
	// Entries leave byID as their jobs end; sweep their names out of order
	// before they outnumber the living.
	if len(s.order) > 64 && len(s.order) > 4*len(s.byID) {
		kept := make([]ident.ID, 0, 2*len(s.byID))
		for _, id := range s.order {
			if s.byID[id] != nil {
				kept = append(kept, id)
			}
		}
		s.order = kept
	}
}

func (s *shard) drop(id ident.ID) {
	if e := s.byID[id]; e != nil {
		s.bytes -= e.msg.Bytes()
		delete(s.byID, id)
	}
}

// SetFresh records that fan-out of the message is confirmed under gen.
func (c *Cache) SetFresh(id ident.ID, gen uint64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		e.gen = gen
	}
}

// Get returns the message, nil when it is not cached, and the generation for
// which it is fresh.
func (c *Cache) Get(id ident.ID) (*durable.Message, uint64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		return e.msg, e.gen
	}
	return nil, 0
}

// Done says that one job of the message is over; the last one drops it.
func (c *Cache) Done(id ident.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		if e.left--; e.left <= 0 {
			s.drop(id)
		}
	}
}
