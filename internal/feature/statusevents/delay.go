package statusevents

import (
	"time"

	"github.com/penstock-broker/penstock/durable"
)

const (
	// firstWait and lastWait bound the waits between tries of a reply URL, which double.
	firstWait, lastWait = 5 * time.Second, 5 * time.Minute
	// patience is how long a reply URL may take nothing before its batches go to the channel.
	patience = time.Hour
)

// A delay is the wait for a reply URL that takes nothing. It is forgotten with the broker: another
// one tries at once.
type delay struct {
	since, next time.Time
	wait        time.Duration
	version     int64 // of the producer: a changed one is tried at once
}

// waits reports whether the producer's reply URL is not to be tried yet.
func (c *Collector) waits(producerNo uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.delays[producerNo]
	if h == nil {
		return false
	}
	if p := c.o.Catalogue.ProducerByNo(producerNo); p == nil || p.Version != h.version {
		delete(c.delays, producerNo)
		return false
	}
	return time.Now().Before(h.next) && time.Since(h.since) < patience
}

// tried notes the result of a try. It returns true where the batch has to wait for the next one.
func (c *Collector) tried(p *durable.Producer, err error) (wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.delays, p.No)
		return false
	}
	now := time.Now()
	h := c.delays[p.No]
	if h == nil {
		h = &delay{since: now, version: p.Version}
		c.delays[p.No] = h
		c.o.Log.Warn("a reply URL does not take status events; they wait", "producer", p.ID, "error", err)
	}
	if now.Sub(h.since) >= patience {
		return false
	}
	h.wait = min(max(2*h.wait, firstWait), lastWait)
	h.next = now.Add(h.wait)
	return true
}
