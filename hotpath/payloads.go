package hotpath

import (
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

// payloadShards spreads the lock of the payload cache.
const payloadShards = 16

// A payloads is the byte-bounded memory of messages that this process stored
// itself: it saves the SELECT before a delivery, and its entries carry what the
// fresh rule needs. Losing an entry is always correct, only slower.
type payloads struct {
	shards [payloadShards]payloadShard
}

type payloadShard struct {
	mu    sync.Mutex
	byID  map[ident.ID]*payload
	order []ident.ID // oldest first; may name entries that are gone
	bytes int
	limit int
}

// A payload is a cached message. It is fresh for generation gen: every one of
// its jobs was put into Redis by this process, once, with a known reply, and
// nothing has happened to Redis since if the generation is still the same.
type payload struct {
	msg  *durable.Message
	gen  uint64 // 0: not fresh
	left int    // jobs not over
}

func newPayloads(limitBytes int) *payloads {
	p := &payloads{}
	for i := range p.shards {
		p.shards[i].byID = map[ident.ID]*payload{}
		p.shards[i].limit = limitBytes / payloadShards
	}
	return p
}

// shard picks by the sequence bytes, which differ between neighbours.
func (p *payloads) shard(id ident.ID) *payloadShard { return &p.shards[id[9]%payloadShards] }

func size(m *durable.Message) int { return len(m.Payload) + len(m.Headers) + 256 }

func (p *payloads) put(m *durable.Message) {
	s := p.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[m.ID] = &payload{msg: m, left: m.Audience}
	s.order = append(s.order, m.ID)
	s.bytes += size(m)
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

func (s *payloadShard) drop(id ident.ID) {
	if e := s.byID[id]; e != nil {
		s.bytes -= size(e.msg)
		delete(s.byID, id)
	}
}

// setFresh records that fan-out of the message is confirmed under gen.
func (p *payloads) setFresh(id ident.ID, gen uint64) {
	s := p.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		e.gen = gen
	}
}

// get returns the message, nil when it is not cached, and the generation for
// which it is fresh.
func (p *payloads) get(id ident.ID) (*durable.Message, uint64) {
	s := p.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		return e.msg, e.gen
	}
	return nil, 0
}

// done says that one job of the message is over; the last one drops it.
func (p *payloads) done(id ident.ID) {
	s := p.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil {
		if e.left--; e.left <= 0 {
			s.drop(id)
		}
	}
}
