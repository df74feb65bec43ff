package exchange

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// roomBytes bounds the responses in memory, from their first byte until they are stored.
	roomBytes = 128 << 20
	// roomRests is the number of responses beside it that are read to their end although their
	// consumers have their parts: a response of which a part came must not wait for others like it.
	roomRests = 32
	// leastRoom is taken before a request of a consumer whose responses are small.
	leastRoom = 8 << 10
)

// A Room is the memory for responses. Consumers share it.
type Room struct {
	bytes *share.Bound
	rests *share.Bound // in responses
}

// NewRoom returns a room. It is used by reference.
func NewRoom() *Room {
	return &Room{bytes: share.New(share.Options{Name: "responses", Most: roomBytes}),
		rests: share.New(share.Options{Name: "response_rests", Most: roomRests, Others: true})}
}

// Bounds returns what consumers share.
func (r *Room) Bounds() []*share.Bound { return []*share.Bound{r.bytes, r.rests} }

// Usual is the size of the responses of a consumer as those before tell it.
func Usual(before int64, size int) int64 {
	return max(int64(size), before-(before-int64(size))/8)
}

// Begin takes room for the response to one request, of at most that many bytes, before it is sent. It
// takes what responses of the consumer usually have, and nil means that this is more than its part.
func (r *Room) Begin(k *durable.Consumer, usual int64, most int) *Taken {
	t := &Taken{room: r, key: share.Consumer(k.Account()), n: min(max(usual, leastRoom), int64(most))}
	if !r.bytes.Take(t.key, t.n) {
		return nil
	}
	return t
}

// Taken is the room of one response. Only its last use may be in another goroutine.
type Taken struct {
	room *Room
	key  share.Key
	n    int64
	rest *share.Permit // nil: it is inside the part of its consumer
}

// For makes keep count the body of an answer that ends by a deadline.
func (t *Taken) For(keep *egress.Keep, deadline time.Time) {
	keep.Has = int(t.n)
	keep.Room = func(n int) bool {
		if t.rest == nil && !t.room.bytes.Take(t.key, int64(n)) {
			keep.Waited = true
			rest := t.room.rests.Permit(t.key, keep.End)
			ctx, cancel := context.WithDeadline(context.Background(), deadline)
			defer cancel()
			if rest.Wait(ctx, 1) != nil {
				rest.Close()
				return false
			}
			t.rest = rest
		}
		if t.rest != nil {
			t.rest.Moved(n)
			t.room.bytes.Add(t.key, int64(n))
		}
		t.n += int64(n)
		return true
	}
}

// Keep gives back what the response does not have.
func (t *Taken) Keep(size int) {
	if over := t.n - int64(size); over > 0 {
		t.room.bytes.Give(t.key, over)
		t.n -= over
	}
}

// Close gives the room back: the response is stored, or given up.
func (t *Taken) Close() {
	t.room.bytes.Give(t.key, t.n)
	if t.rest != nil {
		t.rest.Close()
	}
}
