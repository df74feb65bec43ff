package ident

import (
	"encoding/binary"
	"sync"
)

// A Generator makes the message IDs of one broker. Within a generator IDs
// strictly ascend, also when its clock steps back; between brokers they are
// distinct because each holds its own leased node number.
type Generator struct {
	now func() int64 // Unix milliseconds

	mu   sync.Mutex
	node uint16
	ms   int64
	seq  uint32
}

// NewGenerator returns a generator for that node number. now is the clock, in
// Unix milliseconds; it may be called concurrently with itself.
func NewGenerator(node uint16, now func() int64) *Generator {
	return &Generator{now: now, node: node}
}

// SetNode changes the node number: the broker lost its lease and took another.
func (g *Generator) SetNode(node uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.node = node
}

// Next returns a new message ID.
func (g *Generator) Next() ID { return g.Block(1) }

// MaxBlock is the largest block of IDs.
const MaxBlock = 1 << 15

// Block returns the first of n new message IDs in one millisecond, at most MaxBlock. The others are
// those that After returns. No other ID is between them, from whatever broker.
func (g *Generator) Block(n int) ID {
	ms := g.now()
	g.mu.Lock()
	if ms > g.ms {
		g.ms, g.seq = ms, 0
	} else if g.seq++; g.seq+uint32(n)-1 > 0xffff { // 65 536 messages in a millisecond: borrow the next one
		g.ms, g.seq = g.ms+1, 0
	}
	ms, seq, node := g.ms, g.seq, g.node
	g.seq += uint32(n) - 1
	g.mu.Unlock()

	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(ms))
	var id ID
	copy(id[:6], b[2:])
	binary.BigEndian.PutUint16(id[6:], node)
	binary.BigEndian.PutUint16(id[8:], uint16(seq))
	return id
}

// After returns message ID n of the block that begins with id.
func (id ID) After(n int) ID {
	binary.BigEndian.PutUint16(id[8:], binary.BigEndian.Uint16(id[8:])+uint16(n))
	return id
}
