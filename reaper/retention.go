package reaper

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// purgeTimeout bounds a transaction, which may wait for the row lock of a broker that
	// stands still, and whose own locks delay others meanwhile.
	purgeTimeout = 10 * time.Second
	// purgeAgain is the interval at which the purger starts again at the oldest message:
	// jobs of messages that it kept may be over by then.
	purgeAgain = time.Hour
	// purgeTurn is the time after which a channel with more to remove waits for the others, purgeRound that after
	// which those are looked at again that had no more.
	purgeTurn, purgeRound = 5 * time.Second, time.Minute
)

// A purger removes the messages of this broker's channels that are past their retention
// and whose jobs are over. Only its loop uses it.
type purger struct {
	*Reaper
	began   time.Time               // when the present scan began at the oldest messages
	scanned map[uint32]ident.ID     // channel -> position of the present scan
	waits   map[uint32]bool         // channels whose scan had not come to its end in their turn, so it goes on
	passed  map[uint32]ident.ID     // channel -> furthest position of any scan
	emptied map[uint32]bool         // deleted channels of which nothing is left
	limited map[uint32]*limited     // channels with limits of their own
	unsaid  map[uint32]bool         // channels whose alarm of a failing archive is open, or known to be ended
	looked  map[uint32]*attemptScan // channels whose old attempts were looked for
	history int                     // of the store, in which the positions are
	refused map[uint32]bool         // channels of which the archive took nothing the last time
	paces   map[uint32]pace         // of channels, where they are not zero
	turn    time.Duration           // purgeTurn
}

func newPurger(r *Reaper) *purger {
	return &purger{Reaper: r, scanned: map[uint32]ident.ID{}, waits: map[uint32]bool{},
		passed: map[uint32]ident.ID{}, emptied: map[uint32]bool{},
		limited: map[uint32]*limited{}, unsaid: map[uint32]bool{}, looked: map[uint32]*attemptScan{},
		history: r.history(), refused: map[uint32]bool{}, paces: map[uint32]pace{}, turn: purgeTurn}
}

func (r *Reaper) retentionLoop(ctx context.Context) {
	p := newPurger(r)
	every := time.Minute
	if r.Retention > 0 {
		every = min(max(r.Retention/1000, time.Second), every)
	}
	r.rounds(ctx, every, "messages past their retention cannot be removed; retention tries again",
		func(ctx context.Context) error {
			if !p.limits() {
				return nil
			}
			return p.round(ctx)
		})
}

// round visits all channels, and then again those with more to remove: a channel has a turn, and is then behind the
// others. After the failure of one channel it continues with the others. It returns the last error.
func (p *purger) round(ctx context.Context) (failure error) {
	rested, more := map[uint32]bool{}, true
	clear(p.refused)
	for began := time.Now(); more && ctx.Err() == nil && time.Since(began) < purgeRound; {
		var err error
		more, err = p.pass(ctx, rested)
		failure = cmp.Or(err, failure)
	}
	if ctx.Err() == nil && !more && len(p.refused) == 0 {
		p.archiveFailing.Set(0)
	}
	if failure == nil && !more {
		p.overdue.Set(0)
	}
	return failure
}

// pass gives each channel a turn that has not rested, and notes which have no more to remove, or failed. more: some
// have more.
func (p *purger) pass(ctx context.Context, rested map[uint32]bool) (more bool, failure error) {
	if p.another(&p.history) {
		p.began = time.Time{}
		clear(p.scanned)
		clear(p.waits)
		clear(p.passed)
		clear(p.emptied)
		clear(p.looked)
	}
	again := purgeAgain
	if p.Retention > 0 {
		again = min(again, p.Retention)
	}
	if time.Since(p.began) >= again {
		p.began = time.Now()
		maps.DeleteFunc(p.scanned, func(channel uint32, _ ident.ID) bool { return !p.waits[channel] })
	}
	for after := uint32(0); ; {
		page, err := p.Store.LatestMessages(ctx, after, channelPage)
		if err != nil {
			return false, err
		}
		for _, latest := range page {
			after = latest.ChannelNo
			ch := p.Catalogue.ChannelByNo(after)
			if ch == nil || !p.Cluster.Owns(after) || rested[after] {
				continue
			}
			goes, err := p.channel(ctx, ch, latest.ID)
			if goes {
				p.waits[after] = true
			} else {
				delete(p.waits, after)
			}
			attempts, trimErr := p.oldAttempts(ctx, ch)
			failure = cmp.Or(err, trimErr, failure)
			goes = goes || attempts
			rested[after], more = !goes, more || goes
		}
		if len(page) < channelPage {
			return more, failure
		}
	}
}

// channel removes the messages of one channel whose jobs are over, for a turn. Its last message is
// latest. more: there are others.
func (p *purger) channel(ctx context.Context, ch *catalogue.Channel, latest ident.ID) (more bool, err error) {
	job := durable.Purge{ChannelNo: ch.No, Consumers: ch.Consumers, Deleted: ch.Deleted}
	own := p.again(ch)
	switch err := p.bound(ctx, ch, &job); {
	case err != nil:
		return false, err
	case ch.Deleted && latest.IsZero():
		return false, p.empty(ctx, ch, job)
	case job.Through.IsZero():
		return false, nil
	}
	job.After, job.Through = p.scanned[ch.No], minID(job.Through, latest)
	for began := time.Now(); job.After.Compare(job.Through) < 0; {
		if ch = p.Catalogue.ChannelByNo(job.ChannelNo); ch == nil || ch.Deleted != job.Deleted {
			return false, nil // the next round looks at it anew
		}
		job.Consumers = ch.Consumers
		done, err := p.remove(ctx, ch, job)
		p.purged.Add(float64(done.Removed))
		p.limitedBy(ch, own, &job, done.Removed)
		if err != nil {
			return false, err
		}
		job.After = done.Last
		p.scanned[ch.No] = done.Last
		if done.Last.Compare(p.passed[ch.No]) > 0 {
			p.passed[ch.No] = done.Last
			if !ch.Deleted {
				p.overdue.Set(float64(job.Through.Millis()-done.Last.Millis()) / 1000)
			}
		}
		if time.Since(began) >= p.turn && job.After.Compare(job.Through) < 0 {
			return true, nil
		}
	}
	if ch.Deleted {
		return false, nil
	}
	return false, p.trimBooks(ctx, ch, job.Through)
}

// trimBooks removes what the books have of messages that are past their retention.
func (p *purger) trimBooks(ctx context.Context, ch *catalogue.Channel, through ident.ID) error {
	for _, k := range ch.Consumers {
		if k.Deleted() {
			continue
		}
		if err := p.Store.TrimBooks(ctx, k.No, through); err != nil {
			return err
		}
	}
	return nil
}

// empty removes, once, the rows of jobs that ended after their messages were removed with the
// channel.
func (p *purger) empty(ctx context.Context, ch *catalogue.Channel, job durable.Purge) error {
	last := int64(0)
	for _, k := range ch.Consumers {
		last = max(last, k.StateMs)
	}
	if p.emptied[ch.No] || p.Cluster.NowMs() < last+forgetAfter[len(forgetAfter)-1].Milliseconds() {
		return nil
	}
	job.ChannelNo, job.Consumers, job.Limit = ch.No, ch.Consumers, 1
	_, err := p.purge(ctx, job)
	p.emptied[ch.No] = err == nil
	return err
}

func (p *purger) purge(ctx context.Context, job durable.Purge) (durable.Purged, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	return p.Store.Purge(ctx, job)
}
