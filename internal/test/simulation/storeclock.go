package simulation

import (
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A storeClock is the clock of the store: that of its server, which goes back at times, and a floor.
type storeClock struct {
	server  func() time.Time
	behind  atomic.Int64 // ms that the server's clock went back
	floorMs atomic.Int64
	aheadMs atomic.Int64
	steps   int64 // of the server's clock; guarded by the lock of the store, as beat and history
	beat    int64 // raises
	history int64 // its name
	trusted bool  // the floor has no effect
}

func (c *storeClock) serverMs() int64 { return c.server().UnixMilli() - c.behind.Load() }

// nowMs is the time of the store.
func (c *storeClock) nowMs() int64 {
	server, floor := c.serverMs(), c.floorMs.Load()
	if c.trusted {
		return server
	}
	return max(floor, server, min(server+c.aheadMs.Load(), floor+5000))
}

// stepBack lets the server's clock go back.
func (c *storeClock) stepBack(by time.Duration) { c.behind.Add(by.Milliseconds()) }

// raise raises the floor as a renewal does that knows a time which has passed. The simulation has a
// rule of its own: the clock goes on from the latest time that is known, and a beat that was not seen
// yet means another history.
func (c *storeClock) raise(seen durable.Clock, passedMs int64) durable.Clock {
	if seen.History > c.history || seen.History == c.history && seen.Beat > c.beat {
		c.history = seen.History + 1
	}
	c.beat++
	now, server := c.nowMs(), c.serverMs()
	least := max(c.floorMs.Load(), passedMs)
	if gap := least - (server + c.aheadMs.Load()); gap > 100 && !c.trusted {
		c.steps++
		c.aheadMs.Add(gap)
		now = least
	} else if now > server {
		c.aheadMs.Store(max(min(c.aheadMs.Load()-(now-c.floorMs.Load())/20, now-server), 0))
	} else {
		c.aheadMs.Store(0)
	}
	c.floorMs.Store(max(now, least))
	return durable.Clock{FloorMs: c.floorMs.Load(), AheadMs: c.aheadMs.Load(), Steps: c.steps, Beat: c.beat,
		History: c.history}
}
