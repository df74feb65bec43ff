package simulation

import (
	"encoding/binary"
	"time"

	"github.com/penstock-broker/penstock/hotpath/cluster"
)

// A chance is a stream of random numbers that its name decides: the same words
// give the same stream in every run.
type chance struct{ state uint64 }

// draw names a stream.
func draw(words ...uint64) chance {
	var c chance
	for _, w := range words {
		c.state ^= w
		c.next()
	}
	return c
}

// next is one step of splitmix64 (Steele, Lea, Flood 2014).
func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	z := c.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	c.state ^= z << 1
	return z
}

// below returns 0..n-1.
func (c *chance) below(n int) int { return int(c.next() % uint64(n)) }

// hit is true perMille times of a thousand.
func (c *chance) hit(perMille int) bool { return c.below(1000) < perMille }

// between returns a time from lo up to hi, to the nanosecond: two draws are
// hardly ever the same, so few things happen at one moment.
func (c *chance) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(c.next()%uint64(hi-lo))
}

// word turns a name into a word for draw (FNV-1a).
func word(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// seed makes the IDs of a broker the same in every run of the seed.
func (l *life) seed(node *cluster.Node) {
	c := draw(l.w.seed, word("ids"), uint64(l.no))
	var b [32]byte
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], c.next())
	}
	node.IDs().Seed(b)
}
