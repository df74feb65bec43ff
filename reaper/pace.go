package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// While the purger keeps up, its transactions are short, and its pauses long: a publish that meets one waits for
// little. Such transactions remove a third as many messages in the same time, so a purger that is behind takes
// large ones, and pauses less. A transaction that keeps what it looks at writes nothing, and is large as well.
const (
	// purgePage is the number of messages that one transaction examines at most, largePage that of a large one, and
	// purgeJobs the number of jobs.
	purgePage, largePage, purgeJobs = 50, 500, 20_000
	// purgePause is the pause after a transaction, as a multiple of the transaction's time: retention takes a fifth
	// of one connection's time. A purger that is behind pauses as long as the transaction took, and takes half.
	purgePause = 4
	// A purger is behind by a purgeBehind-th of the retention, but by no less than purgeLate and no more than
	// purgeLatest.
	purgeBehind, purgeLate, purgeLatest = 10, time.Minute, time.Hour
)

// A pace is how the purger goes through a channel; the zero value is that of one that keeps up.
type pace struct{ large, hurried bool }

// page is how many messages the next transaction of a channel examines.
func (p *purger) page(ch *catalogue.Channel) int {
	most := purgePage
	if p.paces[ch.No].large {
		most = largePage
	}
	return min(max(purgeJobs/(1+len(ch.Consumers)), 1), most)
}

// note decides after a page of a channel how the next one is gone through. The purger hurries only after a page with
// more messages removed than kept: old messages with open jobs do not make it hurry.
func (p *purger) note(ch *catalogue.Channel, page durable.Purged, through ident.ID) {
	retention, _ := p.keeping(ch)
	behind := time.Duration(through.Millis()-page.Last.Millis()) * time.Millisecond
	switch {
	case page.Kept > page.Removed:
		p.paces[ch.No] = pace{large: true}
	case page.Removed > page.Kept && behind > min(max(retention/purgeBehind, purgeLate), purgeLatest):
		p.paces[ch.No] = pace{large: true, hurried: true}
	default:
		delete(p.paces, ch.No)
	}
}

// rest pauses after a transaction of a channel; took is how long it took.
func (p *purger) rest(ctx context.Context, ch *catalogue.Channel, took time.Duration) error {
	if p.paces[ch.No].hurried {
		return pause(ctx, took)
	}
	return pause(ctx, purgePause*took)
}
