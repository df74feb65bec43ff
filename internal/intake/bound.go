// Package intake takes the bodies of requests into memory: within the limit of
// their route, within one bound for all requests of the process, and from clients
// that send at a minimum rate. It is asked after a request was authorised: a
// client without a token gets no memory for its body.
package intake

import "sync/atomic"

// A Bound counts the bytes of all bodies that are being read or wait for a store.
// It is shared by all routes, so that many small limits cannot add up to more
// memory than there is.
type Bound struct {
	most  int64
	taken atomic.Int64
}

// NewBound returns a Bound of that many bytes.
func NewBound(most int64) *Bound { return &Bound{most: most} }

// Take counts n bytes, unless that would be too many.
func (b *Bound) Take(n int64) bool {
	// Added before it is compared, so that of two at once not both fit.
	if b.taken.Add(n) > b.most {
		b.taken.Add(-n)
		return false
	}
	return true
}

// Add counts n bytes that are kept whether they fit or not: they were accepted.
func (b *Bound) Add(n int64) { b.taken.Add(n) }

// Most returns the bound.
func (b *Bound) Most() int64 { return b.most }

// Give is the end of Take and Add.
func (b *Bound) Give(n int64) { b.taken.Add(-n) }

// Taken returns how many bytes are counted.
func (b *Bound) Taken() int64 { return b.taken.Load() }
