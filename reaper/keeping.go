package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// What a channel says itself of what it keeps: an age, and bounds on the number and the size of its newest
// messages. A bound is the ID of a message: what is older, and over for every consumer, is removed as what
// is past its age is. No bound removes a message that is younger than leastKept.

const (
	// countPage is the number of messages that one transaction counts at most.
	countPage = 1000
	// stretchesKept is the number of stretches, of countPage messages or more, in which a limit is counted.
	// Where these are longer than countPage, up to one stretch more than the limit is kept.
	stretchesKept = 1000
	// limitAgain is purgeAgain for channels whose number or size of messages is limited.
	limitAgain = 10 * time.Minute
	// limitTold is the interval at which the log says what the limits of a channel have removed.
	limitTold = time.Hour
)

// A limited is what the purger knows of a channel with limits of its own.
type limited struct {
	began   time.Time // when the present scan began at the oldest messages
	told    time.Time // when the log had the last line
	removed int       // since then
}

// leastKept is the age below which no message is removed: readers take a job of a younger message without
// an outcome for open.
func (r *Reaper) leastKept() time.Duration { return r.RationalDelay + durable.MinRetention }

// keeping returns the ages of a channel: its own, or those of the installation. 0: for ever.
func (r *Reaper) keeping(ch *catalogue.Channel) (retention, dead time.Duration) {
	k := &ch.Intake.Keeping
	return k.Retention.Or(r.Retention), k.DeadRetention.Or(r.DeadRetention)
}

// limits reports whether any channel has to be looked at: without a retention, and without a limit of a
// channel, a round costs nothing.
func (p *purger) limits() bool {
	if p.Retention > 0 || p.AttemptRetention > 0 || len(p.Catalogue.DeletedChannels()) > 0 {
		return true
	}
	for from := ""; ; {
		page := p.Catalogue.Channels(from, channelPage)
		for _, ch := range page {
			if ch.Intake.Keeping != (policy.Keeping{}) {
				return true
			}
			from = ch.ID + "\x00"
		}
		if len(page) < channelPage {
			return false
		}
	}
}

// bound sets what a purge of the channel may remove: up to which message, because of which limit, and which
// dead letters. A zero Through: nothing.
func (p *purger) bound(ctx context.Context, ch *catalogue.Channel, job *durable.Purge) error {
	past := p.Cluster.PastMs()
	job.AtMs = past
	retention, dead := p.keeping(ch)
	if dead > 0 {
		job.DeadBeforeMs = past - dead.Milliseconds()
	}
	if ch.Deleted { // at once, whatever the retention
		job.Through = p.through()
		return nil
	}
	if retention > 0 {
		own := ch.Intake.Keeping.Retention != (policy.Age{})
		if own {
			retention = max(retention, p.leastKept())
			job.By = durable.AgeLimit
		}
		job.Through = minID(p.through(), ident.AtMillis(past-retention.Milliseconds()))
	}
	if !ch.Intake.Keeping.Sized() {
		return nil
	}
	settled := minID(p.through(), ident.AtMillis(past-p.leastKept().Milliseconds()))
	through, by, err := p.beyond(ctx, ch)
	if through = minID(through, settled); through.Compare(job.Through) > 0 {
		job.Through, job.By = through, by
	}
	return err
}

// again makes the scan of a channel with limits of its own begin again now and then: jobs of messages that it
// kept may be over by then.
func (p *purger) again(ch *catalogue.Channel) *limited {
	k := &ch.Intake.Keeping
	if *k == (policy.Keeping{}) {
		delete(p.limited, ch.No)
		return nil
	}
	l := p.limited[ch.No]
	if l == nil {
		l = &limited{began: time.Now()}
		p.limited[ch.No] = l
	}
	every := purgeAgain
	if k.Sized() {
		every = limitAgain
	}
	if own := k.Retention.Or(0); own > 0 {
		every = min(every, own)
	}
	if time.Since(l.began) >= every && !p.waits[ch.No] {
		l.began = time.Now()
		delete(p.scanned, ch.No)
	}
	return l
}

// beyond counts what is new in a channel and returns the newest message that its limits do not keep.
func (p *purger) beyond(ctx context.Context, ch *catalogue.Channel) (ident.ID, durable.Limit, error) {
	k := &ch.Intake.Keeping
	room := budget{k.Messages.Or(0), k.Bytes.Or(0)}
	for more := true; more; {
		var err error
		start := time.Now()
		if more, err = p.Store.CountMessages(ctx, ch.No, p.through(), countPage, room.full); err != nil {
			return ident.ID{}, 0, err
		}
		if more {
			if err := pause(ctx, purgePause*time.Since(start)); err != nil {
				return ident.ID{}, 0, err
			}
		}
	}
	stretches, err := p.Store.Stretches(ctx, ch.No)
	if err != nil {
		return ident.ID{}, 0, err
	}
	for i := len(stretches) - 1; i >= 0; i-- {
		at := stretches[i]
		if room.takes(at) {
			continue
		}
		var before ident.ID // the end of the stretch before it
		if i > 0 {
			before = stretches[i-1].Through
		}
		if i > 1 { // these are beyond the limits for ever
			if err := p.Store.TrimStretches(ctx, ch.No, stretches[i-2].Through); err != nil {
				return ident.ID{}, 0, err
			}
		}
		return p.within(ctx, ch.No, room, before, at)
	}
	return ident.ID{}, 0, nil
}

// within looks for the newest message of a stretch that has no room. What is older than a stretch that has is
// beyond the limit with it, so a stretch that is longer than a page, and has none in its newest part, is kept.
func (p *purger) within(ctx context.Context, channelNo uint32, room budget, before ident.ID,
	at durable.Stretch) (ident.ID, durable.Limit, error) {
	by := room.missing(at)
	newest, err := p.Store.NewestSizes(ctx, channelNo, before, at.Through, countPage)
	if err != nil {
		return ident.ID{}, 0, err
	}
	for _, m := range newest {
		if !room.takes(m) {
			return m.Through, room.missing(m), nil
		}
	}
	return before, by, nil
}

// A budget is the room for the newest messages of a channel. A limit of 0 is none.
type budget struct{ messages, bytes int64 }

// full reports whether a stretch is long enough for its channel.
func (b budget) full(s durable.Stretch) bool {
	enough := func(n, limit int64) bool { return limit > 0 && n >= limit/stretchesKept }
	return s.Messages >= countPage && (enough(s.Messages, b.messages) || enough(s.Bytes, b.bytes))
}

// takes takes the room of a stretch, if there is some for all of it.
func (b *budget) takes(s durable.Stretch) bool {
	if b.missing(s) != durable.NoLimit {
		return false
	}
	for _, take := range []struct {
		left *int64
		n    int64
	}{{&b.messages, s.Messages}, {&b.bytes, s.Bytes}} {
		if *take.left > 0 {
			if *take.left -= take.n; *take.left == 0 {
				*take.left = spent
			}
		}
	}
	return true
}

// spent is a limit without room: 0 is no limit.
const spent = -1

// missing returns the limit that leaves no room for a stretch.
func (b *budget) missing(s durable.Stretch) durable.Limit {
	switch {
	case b.messages != 0 && s.Messages > max(b.messages, 0):
		return durable.MessagesLimit
	case b.bytes != 0 && s.Bytes > max(b.bytes, 0):
		return durable.BytesLimit
	}
	return durable.NoLimit
}

// limitedBy counts what a page has removed because of a limit of its channel, and tells of it.
func (p *purger) limitedBy(ch *catalogue.Channel, l *limited, job *durable.Purge, removed int) {
	if l == nil || job.By == durable.NoLimit || removed == 0 {
		return
	}
	p.cut.WithLabelValues(job.By.String()).Add(float64(removed))
	l.removed += removed
	if time.Since(l.told) < limitTold {
		return
	}
	p.Log.Info("messages were removed by retention of the channel", "channel", ch.ID, "limit", job.By.String(),
		"messages", l.removed)
	l.told, l.removed = time.Now(), 0
}

// pause waits, or returns the error of a context that ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
