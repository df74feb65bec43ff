package reaper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/redisq"
)

// A scan is one consumer in one round of the reconciler, with a copy of its scan state that
// only this loop changes.
type scan struct {
	scanState
	k       *durable.Consumer
	epoch   string        // of the Redis state that the scan completes
	outside bool          // the queue assumes that jobs are outside its window
	open    int           // jobs that were offered and were not over
	matcher *jobs.Matcher // of the messages before the consumer was created; nil until one is examined
}

// begin returns a scan with the consumer's scan state, which it restarts when Redis lost
// state. It returns nil within lossGrace of the loss.
func (r *Reaper) begin(k *durable.Consumer) *scan {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.resting[k.No]) {
		return nil
	}
	delete(r.resting, k.No)
	l := r.scanStates[k.No]
	if l == nil {
		l = &scanState{}
		l.restart(r.Cluster.NowMs())
		r.scanStates[k.No] = l
	}
	if l.lost {
		l.restart(r.Cluster.NowMs())
	}
	if l.spilled && l.levels == nil { // only a scan by priority ends the spill
		l.levels = map[int]ident.ID{}
	}
	l.spilled = false
	return &scan{scanState: *l, k: k}
}

// save applies a change to the scan and to the scan state. It leaves the scan state alone when
// Redis lost state meanwhile: the scan has read the lost state, and the next round
// restarts the scan state.
func (r *Reaper) save(s *scan, change func(l *scanState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&s.scanState)
	if l := r.scanStates[s.k.No]; l != nil && !l.lost {
		change(l)
	}
}

// unlessLost returns nil for the loss of Redis state during a scan, and err otherwise.
// Lost has been called for that loss, and a later round scans again.
func unlessLost(err error) error {
	if errors.Is(err, redisq.ErrLost) {
		return nil
	}
	return err
}

// stillThere reads the consumer's state in Redis before the scan writes to it, and reports
// whether that state is intact. A loss noticed only by the write of a job would leave the
// broker that is delivering the job no time to restore its lease.
func (r *Reaper) stillThere(ctx context.Context, s *scan) (bool, error) {
	stats, err := r.Queue.Stats(ctx, s.k.No)
	if err != nil {
		return false, err
	}
	s.epoch = stats.Epoch
	r.mu.Lock()
	defer r.mu.Unlock()
	_, lost := r.resting[s.k.No]
	return !lost, nil
}

// scanCommon checks messages in the order of their IDs, with one read for all consumers of
// the channel. A consumer whose Redis fails leaves the scan. scanCommon returns the last
// such error.
func (r *Reaper) scanCommon(ctx context.Context, ch *catalogue.Channel, scans []*scan,
	through ident.ID) (failure error) {
	for len(scans) > 0 {
		from := scans[0].checked
		for _, s := range scans {
			if s.checked.Compare(from) < 0 {
				from = s.checked
			}
		}
		heads, err := r.Store.Heads(ctx, ch.No, from, through, pageSize)
		if err != nil {
			return err
		}
		last := through
		if len(heads) == pageSize {
			last = heads[len(heads)-1].ID
		}
		var rest []*scan
		for _, s := range scans {
			if s.checked.Compare(last) >= 0 {
				rest = append(rest, s)
				continue
			}
			upto, err := r.present(ctx, ch, s, heads, last)
			if err != nil {
				failure = cmp.Or(unlessLost(err), failure)
				continue
			}
			if upto != last || s.outside { // the window is or was full: continue by priority
				r.save(s, func(l *scanState) { l.checked, l.levels = upto, map[int]ident.ID{} })
				r.poke()
				continue
			}
			r.save(s, func(l *scanState) { l.checked = last })
			if last != through {
				rest = append(rest, s)
			}
		}
		if last == through {
			return failure
		}
		scans = rest
	}
	return failure
}

// present offers Redis the heads that concern the consumer and are newer than its
// watermark. It returns the new watermark: last, or the message before the first one that
// found no room or was not examined.
func (r *Reaper) present(ctx context.Context, ch *catalogue.Channel, s *scan, heads []durable.Head,
	last ident.ID) (ident.ID, error) {
	newer := slices.IndexFunc(heads, func(h durable.Head) bool { return h.ID.Compare(s.checked) > 0 })
	if newer < 0 {
		return last, nil
	}
	heads = heads[newer:]
	mine, read, err := r.concerned(ctx, s, heads)
	if err != nil {
		return last, err
	}
	if read < len(heads) {
		last = heads[read-1].ID
	}
	upto, err := r.offer(ctx, ch, s, mine)
	if err != nil || upto == len(mine) {
		return last, err
	}
	return before(mine, upto, s.checked), nil
}

// before returns the ID in front of heads[i], which is watermark for the first one.
func before(heads []durable.Head, i int, watermark ident.ID) ident.ID {
	if i == 0 {
		return watermark
	}
	return heads[i-1].ID
}

// offer puts the open jobs that Redis lacks into it, directly or through the re-trigger
// endpoint. It returns the number of leading heads that are over or in Redis.
func (r *Reaper) offer(ctx context.Context, ch *catalogue.Channel, s *scan, heads []durable.Head) (int, error) {
	if len(heads) == 0 {
		return 0, nil
	}
	if r.Retrigger != nil && s.levels == nil {
		return len(heads), r.retrigger(ctx, ch, s, heads)
	}
	p, err := r.Jobs.Recover(ctx, s.k.No, s.epoch, heads)
	if err != nil {
		return 0, err
	}
	failpoint.At(failpoint.AfterPage)
	s.outside = s.outside || p.Outside
	s.open += len(heads) - p.Over
	if p.Added > 0 {
		r.recovered.Add(float64(p.Added))
		r.Touch(s.k.No)
		r.Log.Info("the reconciler offered jobs that Redis lacked", "consumer", s.k.No, "jobs", p.Added)
	}
	return p.Upto, nil
}
