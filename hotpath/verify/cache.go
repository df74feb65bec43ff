package verify

import (
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// shards is the number of independently locked parts of the cache.
const shards = 16

// A Cache holds messages that this process stored, bounded by bytes. It saves the SELECT before a
// delivery, and its entries carry the incarnation for the fresh rule. Losing an entry is always
// correct, only slower.
type Cache struct {
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	byID  map[ident.ID]*entry
	order []ident.ID // oldest first; may contain IDs of dropped entries
	bytes int
	limit int
}

// An entry is a cached message. It is fresh for incarnation gen: this process put each of its jobs
// into Redis once and received the reply. While the incarnation stays the same, Redis has lost
// nothing since.
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

// shard selects by a sequence byte, which differs between consecutive IDs.
func (c *Cache) shard(id ident.ID) *shard { return &c.shards[id[9]%shards] }

// Put adds a message with no job that is over.
func (c *Cache) Put(m *durable.Message) {
	s := c.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[m.ID] = &entry{msg: m, left: m.Head().Jobs()}
	s.order = append(s.order, m.ID)
	s.bytes += m.Bytes()
	for s.bytes > s.limit && len(s.order) > 0 {
		s.drop(s.order[0])
		s.order = s.order[1:]
	}
	// Entries leave byID when their jobs end. Their IDs are removed from order before they far
	// outnumber the present entries.
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

// SetFresh records that Redis confirmed the fan-out of the message under incarnation gen.
func (c *Cache) SetFresh(id ident.ID, gen uint64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		e.gen = gen
	}
}

// Get returns the message and the incarnation for which it is fresh. It returns nil if the message
// is not cached.
func (c *Cache) Get(id ident.ID) (*durable.Message, uint64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		return e.msg, e.gen
	}
	return nil, 0
}

// Done records that one job of the message is over. The last one drops the entry.
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
