package reaper

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A consumer that is attached as of a time gets messages for which its filter was not evaluated when
// they were stored. The scan that loads them evaluates it, before it offers them: a message that it
// refuses is left out from then on, for scans, counts and books. The verdict depends on the message
// and on the filter that the consumer had at its creation, so a scan that begins again comes to the
// same one.

// passed reports whether all messages that were stored before a consumer was created are behind the
// horizon. Before that the scan of a consumer that gets such messages does not begin: its end would
// let newer messages go first.
func (r *Reaper) passed(k *durable.Consumer) bool {
	// Neither time is before the creation. The clocks of the brokers, which give the IDs, differ.
	created := min(k.ChangedAt.UnixMilli(), k.StateMs) + durable.MaxIDAge.Milliseconds()
	return k.Since.IsZero() || r.through().Millis() > created
}

// concerned returns those of the heads that concern the consumer of the scan. It examines
// heads[:read], at least one; with a filter for the past it may stop at a bound of bytes or time for
// the round.
func (r *Reaper) concerned(ctx context.Context, s *scan, heads []durable.Head) (mine []durable.Head, read int,
	err error) {
	mine = concernedBy(s.k, heads)
	f := policy.FilterOf(s.k.SincePolicy)
	var joined []ident.ID // for which the filter is to be evaluated
	for _, h := range mine {
		if f != nil && s.k.Joined(h) {
			joined = append(joined, h.ID)
		}
	}
	if len(joined) == 0 {
		return mine, len(heads), nil
	}
	if s.matcher == nil {
		s.matcher = &jobs.Matcher{Store: r.Store, Filter: f, Seen: r.Catalogue.Seen, Bytes: matchBytes,
			Until: time.Now().Add(matchFor)}
	}
	match, examined, err := s.matcher.Match(ctx, s.k.ChannelNo, joined)
	if err != nil {
		return nil, 0, err
	}
	read = len(heads)
	if examined < len(joined) {
		at := func(h durable.Head) bool { return h.ID == joined[examined] }
		read, mine = slices.IndexFunc(heads, at), mine[:slices.IndexFunc(mine, at)]
	}
	mine = slices.DeleteFunc(mine, func(h durable.Head) bool { return s.k.Joined(h) && !match[h.ID] })
	refused := slices.DeleteFunc(joined[:examined], func(id ident.ID) bool { return match[id] })
	return mine, read, r.Store.LeaveOut(ctx, *s.k, refused)
}
