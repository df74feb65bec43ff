package ident

import (
	crypto "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// A Generator makes the message IDs of one broker. Within a generator IDs
// strictly ascend, also when its clock steps back; between brokers they are
// distinct because each holds its own leased node number. The sequence numbers
// are random: an ID that a client has seen does not tell the next one.
type Generator struct {
	now func() int64 // Unix milliseconds

	mu     sync.Mutex
	random *rand.ChaCha8 // cryptographically strong
	node   uint16
	ms     int64
	seq    uint32
}

// NewGenerator returns a generator for that node number. now is the clock, in
// Unix milliseconds; it may be called concurrently with itself.
func NewGenerator(node uint16, now func() int64) *Generator {
	var seed [32]byte
	_, _ = crypto.Read(seed[:]) // never fails: the program ends where there is no randomness
	return &Generator{now: now, node: node, random: rand.NewChaCha8(seed)}
}

// Seed makes the random part of the following IDs a function of seed, for simulations.
func (g *Generator) Seed(seed [32]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.random.Seed(seed)
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

// The first sequence number of a millisecond is random below firstSeqs, which leaves room for the
// largest block; each other one is 1 to seqSteps above the one before. So a millisecond has room for
// about 1500 single messages before the next one is borrowed.
const firstSeqs, seqSteps = 1 << 15, 1 << 6

// Block returns the first of n new message IDs in one millisecond, at most MaxBlock. The others are
// those that After returns. No other ID is between them, from whatever broker.
func (g *Generator) Block(n int) ID {
	ms := g.now()
	g.mu.Lock()
	r := uint32(g.random.Uint64())
	if ms > g.ms {
		g.ms, g.seq = ms, r%firstSeqs
	} else if g.seq += 1 + r%seqSteps; g.seq+uint32(n)-1 > 0xffff { // no room in the millisecond: borrow the next one
		g.ms, g.seq = g.ms+1, r%firstSeqs
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
