package statusevents

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// placesAtOnce bounds the batches under way. A producer has one.
	placesAtOnce = 16
	// young is the age from which a request that hangs is ended, where another producer waits.
	young = 2 * time.Second
	// mostLeft bounds the producers whose batches of earlier rounds are in memory. Those of the others
	// stay in the store until a later round.
	mostLeft = 64
)

// errCrowded is the failure of a request that was ended under pressure.
var errCrowded = errors.New("no answer came in time, and others waited for the place")

// newPlaces returns the bound of batches. What waits for the store is not ended.
func newPlaces() *share.Bound {
	return share.New(share.Options{Name: "status_batches", Most: placesAtOnce, Young: young, Resting: true})
}

// Bounds returns what producers share.
func (c *Collector) Bounds() []*share.Bound { return []*share.Bound{c.places} }

// begin works for a producer in the background. Only a round calls it, and for none that is busy.
func (c *Collector) begin(producerNo uint32, work func() error) {
	c.mu.Lock()
	c.busy[producerNo] = true
	c.mu.Unlock()
	c.sends.Go(func() {
		err := guard.Do("status events", work)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.busy, producerNo)
		if c.err == nil {
			c.err = err
		}
	})
}

// underWay returns the producers that are busy. The set is the caller's.
func (c *Collector) underWay() map[uint32]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.busy)
}

// failure returns, once, why work in the background failed.
func (c *Collector) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.err
	c.err = nil
	return err
}

// A place is that of one batch.
type place struct {
	permit *share.Permit
	lost   context.Context // ends when another producer gets the place
}

// inPlace calls f as soon as the producer has a place, unless the broker stops or looks after it no
// longer. It returns what f does.
func (c *Collector) inPlace(ctx context.Context, producerNo uint32, f func(*place) (bool, error)) (more bool,
	err error) {
	lost, end := context.WithCancel(context.Background())
	defer end()
	at := &place{c.places.Permit(share.Producer(producerNo), end), lost}
	defer at.permit.Close()
	if at.permit.Wait(ctx, 1) != nil || ctx.Err() != nil || !c.o.Owns(producerNo) {
		return false, nil
	}
	return f(at)
}

// post posts a batch. Until the answer comes, its place may go to another producer that waits.
func (c *Collector) post(ctx context.Context, at *place, p *durable.Producer, b *durable.StatusBatch) error {
	try, cancel := finish(ctx)
	defer cancel()
	defer context.AfterFunc(at.lost, cancel)()
	at.permit.Rest()
	err := c.o.Post(try, p, key(b), b.Body)
	if !at.permit.Work() && err != nil {
		return errCrowded
	}
	return err
}
