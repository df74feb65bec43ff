package reaper

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// purgePage is how many messages, and purgeJobs how many jobs, one transaction
	// of the retention looks at.
	purgePage = 500
	purgeJobs = 20_000
	// purgePause is how long it rests after a transaction, as a multiple of what that
	// took: a fifth of one connection's time is what it may cost, and half of it where
	// it is behind by purgeBehind of the retention.
	purgePause, purgeBehind = 4, 10
	// purgeTimeout bounds a transaction: it may wait for a message whose broker
	// stands still, and holds others up meanwhile.
	purgeTimeout = 10 * time.Second
	// purgeAgain is how often it begins at the oldest message again: for those that
	// it kept and that are over by now.
	purgeAgain = time.Hour
)

// A purger removes the messages of this broker's channels whose jobs are over and
// whose time has come. Only its loop uses it.
type purger struct {
	*Reaper
	began  time.Time           // of the walk from the oldest messages on
	walked map[uint32]ident.ID // channel -> how far this walk has come
	passed map[uint32]ident.ID // channel -> how far any walk has come
}

func (r *Reaper) retentionLoop(ctx context.Context) {
	if r.Retention <= 0 {
		return
	}
	p := &purger{Reaper: r, passed: map[uint32]ident.ID{}}
	tick := time.NewTicker(min(max(r.Retention/1000, time.Second), time.Minute))
	defer tick.Stop()
	var failures streak
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		failures.round(ctx, r.Log, "messages past their retention cannot be removed; trying again", p.round(ctx))
	}
}

// round looks at all channels once. One that fails does not keep the others
// waiting; the last error is returned.
func (p *purger) round(ctx context.Context) (failure error) {
	if time.Since(p.began) >= min(purgeAgain, p.Retention) {
		p.began, p.walked = time.Now(), map[uint32]ident.ID{}
	}
	past := p.Cluster.PastMs()
	job := durable.Purge{Through: minID(p.through(), ident.AtMillis(past-p.Retention.Milliseconds()))}
	if p.DeadRetention > 0 {
		job.DeadBeforeMs = past - p.DeadRetention.Milliseconds()
	}
	for after := uint32(0); ; {
		page, err := p.Store.LatestMessages(ctx, after, channelPage)
		if err != nil {
			return err
		}
		for _, latest := range page {
			after = latest.ChannelNo
			if ch := p.Catalogue.ChannelByNo(after); ch != nil && p.Cluster.Owns(after) {
				failure = cmp.Or(p.channel(ctx, ch, job, latest.ID), failure)
			}
		}
		if len(page) < channelPage {
			if failure == nil {
				p.overdue.Set(0)
			}
			return failure
		}
	}
}

// channel removes what is over of one channel, whose last message is latest.
func (p *purger) channel(ctx context.Context, ch *catalogue.Channel, job durable.Purge, latest ident.ID) error {
	job.ChannelNo, job.Consumers = ch.No, ch.Consumers
	job.After, job.Through = p.walked[ch.No], minID(job.Through, latest)
	job.Limit = min(max(purgeJobs/(1+len(ch.Consumers)), 1), purgePage)
	for job.After.Compare(job.Through) < 0 {
		start := time.Now()
		done, err := p.purge(ctx, job)
		if err != nil {
			return err
		}
		p.purged.Add(float64(done.Removed))
		job.After = done.Last
		p.walked[ch.No] = done.Last
		if done.Last.Compare(p.passed[ch.No]) > 0 {
			p.passed[ch.No] = done.Last
			p.overdue.Set(float64(job.Through.Millis()-done.Last.Millis()) / 1000)
		}
		behind := time.Duration(job.Through.Millis()-done.Last.Millis()) * time.Millisecond
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.rest(time.Since(start), done, behind)):
		}
	}
	return nil
}

// rest is how long to pause after a page. One that found hardly anything to remove, old
// messages with open jobs, is no reason to hurry.
func (p *purger) rest(took time.Duration, done durable.Purged, behind time.Duration) time.Duration {
	if done.Removed > done.Kept && behind > p.Retention/purgeBehind {
		return took
	}
	return purgePause * took
}

func (p *purger) purge(ctx context.Context, job durable.Purge) (durable.Purged, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	return p.Store.Purge(ctx, job)
}
