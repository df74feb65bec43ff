package reaper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// matcher returns the filter of the replay with the bounds of one round, nil without a filter.
func (l *loader) matcher() (*jobs.Matcher, error) {
	if l.r.Filter == "" {
		return nil, nil
	}
	f := filter.Of(l.r.Filter)
	if f == nil { // another version took it
		return nil, fmt.Errorf("the filter of replay %s is none for this broker", l.r.ID())
	}
	return &jobs.Matcher{Store: l.Store, Filter: f, Seen: l.Catalogue.Seen, Bytes: matchBytes / l.share,
		Until: time.Now().Add(matchFor / time.Duration(l.share))}, nil
}

// load offers the jobs of one page, or of its begin if the matcher reaches a bound. A crash behind the
// offer leaves jobs in Redis: the next loader finds them there, or their outcomes in the store.
func (l *loader) load(ctx context.Context, k *durable.Consumer, s *scan, through ident.ID,
	matcher *jobs.Matcher) error {
	page := min(replayPage, max(l.Queue.Window()/2, 1))
	heads, err := l.Store.Sizes(ctx, k.ChannelNo, s.checked, through, page)
	if err != nil {
		return err
	}
	p := loadedPage{through: through}
	if len(heads) == page {
		p.through = heads[len(heads)-1].ID
	}
	mine, err := l.matching(ctx, k, heads)
	if err != nil {
		return err
	}
	if matcher != nil && len(mine) > 0 {
		if mine, p.through, err = matching(ctx, k, matcher, mine, p.through); err != nil {
			return err
		}
	}
	offer := make([]durable.Head, len(mine))
	for i, m := range mine {
		offer[i] = m.Head
		p.jobs = append(p.jobs, m.ID)
		p.bytes += m.Bytes
	}
	done, err := l.Jobs.Recover(ctx, k.No, s.epoch, offer)
	if err != nil {
		return err
	}
	failpoint.At(failpoint.AfterReplayPage)
	if done.Added > 0 {
		l.Touch(k.No)
	}
	if done.Upto < len(mine) { // the window is full: the rest comes later
		p.through = before(offer, done.Upto, s.checked)
		for _, m := range mine[done.Upto:] {
			p.bytes -= m.Bytes
		}
		p.jobs = p.jobs[:done.Upto]
		if done.Upto == 0 {
			return nil
		}
	}
	l.pages = append(l.pages, p)
	l.save(s, func(g *scanState) { g.checked = p.through })
	return nil
}

// matching returns those of mine for which the filter is true, and the last message examined: through,
// unless the matcher reaches a bound.
func matching(ctx context.Context, k *durable.Consumer, matcher *jobs.Matcher, mine []durable.Sized,
	through ident.ID) ([]durable.Sized, ident.ID, error) {
	ids := make([]ident.ID, len(mine))
	for i := range mine {
		ids[i] = mine[i].ID
	}
	match, read, err := matcher.Match(ctx, k.ChannelNo, ids)
	if err != nil {
		return nil, through, err
	}
	if read < len(ids) {
		through = ids[read-1]
	}
	return slices.DeleteFunc(mine[:read], func(m durable.Sized) bool { return !match[m.ID] }), through, nil
}

// matching returns the messages of a page that the replay repeats. A job that it has begun stays,
// whatever became of the job of the consumer since.
func (l *loader) matching(ctx context.Context, k *durable.Consumer, heads []durable.Sized) ([]durable.Sized, error) {
	ids := make([]ident.ID, 0, len(heads))
	for _, h := range heads {
		if k.Concerns(h.Head) {
			ids = append(ids, h.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	meant, err := l.meant(ctx, k.Replay, ids)
	if err != nil {
		return nil, err
	}
	now, err := l.Store.JobStates(ctx, k.No, ids)
	if err != nil {
		return nil, err
	}
	mine := heads[:0]
	for _, h := range heads {
		if k.Concerns(h.Head) && (meant[h.ID] || now[h.ID].Status != durable.Waiting) {
			mine = append(mine, h)
		}
	}
	return mine, nil
}

// meant returns which messages the replay repeats, by what became of the job of the consumer, or of the one
// whose letters a redrive has.
func (l *loader) meant(ctx context.Context, r *durable.Replay, ids []ident.ID) (map[ident.ID]bool, error) {
	out := map[ident.ID]bool{}
	if r.SourceNo != 0 {
		letters, err := l.Store.RedriveLetters(ctx, r.SourceNo, r.RedriveNo, ids)
		for _, id := range letters {
			out[id] = true
		}
		return out, err
	}
	was, err := l.Store.JobStates(ctx, r.ConsumerNo, ids)
	for _, id := range ids {
		out[id] = r.Of.Matches(was[id].Status)
	}
	return out, err
}
