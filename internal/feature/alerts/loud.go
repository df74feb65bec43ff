package alerts

import (
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// The priorities of alerts. Those that one channel or one consumer has beyond its part of a minute come after the
// others: an owner who is told something now and then does not wait behind one whose consumer dies all the time.
const (
	usual = 1
	loud  = 0

	partOfConsumer, partOfChannel = 5, 20
	partsEvery                    = time.Minute
)

// parts count the alerts that this broker published about channels and consumers since a time. Only the publish loop
// uses them.
type parts struct {
	since time.Time
	of    map[string]int // by channel, and by channel and consumer
}

// priority counts an alert and returns its priority.
func (p *parts) priority(a *durable.Alert, now time.Time) int {
	if now.Sub(p.since) >= partsEvery {
		p.since, p.of = now, map[string]int{}
	}
	consumer := a.ChannelID + "/" + a.ConsumerID
	p.of[a.ChannelID]++
	p.of[consumer]++
	if p.of[a.ChannelID] > partOfChannel || p.of[consumer] > partOfConsumer {
		return loud
	}
	return usual
}
