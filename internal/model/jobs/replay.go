package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// replayCounted is the number of messages that one statement of a count reads, and countReplayFor
	// the time after which a count extrapolates.
	replayCounted  = 2000
	countReplayFor = 3 * time.Second
	// replayCountedBytes is what a count reads of payloads and headers, for a filter.
	replayCountedBytes = 256 << 20
)

// A ReplayStore is the part of durable.Store that counts replays.
type ReplayStore interface {
	MatcherStore
	Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
}

// A ReplayCount is the size of a replay.
type ReplayCount struct {
	Messages, Bytes int64
	// DeadLeftOut are the dead letters of the time that a replay of delivered jobs leaves out, whatever its
	// filter says of them.
	DeadLeftOut int64
	Estimated   bool
}

// CountReplay counts the messages that a replay of the consumer would repeat now. It reads them in
// stretches, without payloads. matcher has the filter of the replay and how its messages are seen; nil:
// the replay has no filter. With one it reads the payloads of the other matches, too. After
// countReplayFor, or replayCountedBytes, it stops, and takes the rest of the time to have as many
// messages as the part that it has read.
func CountReplay(ctx context.Context, s ReplayStore, k *durable.Consumer, r *durable.Replay,
	matcher *Matcher) (c ReplayCount, err error) {
	until := time.Now().Add(countReplayFor)
	if matcher != nil {
		matcher.Store, matcher.Bytes, matcher.Until = s, replayCountedBytes, until
	}
	for after := r.After; ; {
		heads, err := s.Sizes(ctx, k.ChannelNo, after, r.Through, replayCounted)
		if err != nil {
			return c, err
		}
		examined, err := c.page(ctx, s, k, r, matcher, heads)
		if err != nil {
			return c, err
		}
		if len(heads) < replayCounted && examined == len(heads) {
			return c, nil
		}
		after = heads[examined-1].ID
		if examined < len(heads) || !time.Now().Before(until) {
			c.extrapolate(r, after)
			return c, nil
		}
	}
}

// page counts those of heads that match, and returns how many of heads it has examined: not all of
// them, if the matcher has reached a bound.
func (c *ReplayCount) page(ctx context.Context, s ReplayStore, k *durable.Consumer, r *durable.Replay, matcher *Matcher,
	heads []durable.Sized) (int, error) {
	ids := make([]ident.ID, 0, len(heads))
	for _, h := range heads {
		if k.Concerns(h.Head) {
			ids = append(ids, h.ID)
		}
	}
	states, err := s.JobStates(ctx, k.No, ids)
	if err != nil {
		return 0, err
	}
	var places []int // of the candidates in heads
	ids = ids[:0]
	for i, h := range heads {
		if r.Of == durable.ReplayDelivered && states[h.ID].Status == durable.Dead && k.Concerns(h.Head) {
			c.DeadLeftOut++
		}
		if k.Concerns(h.Head) && r.Of.Matches(states[h.ID].Status) {
			places, ids = append(places, i), append(ids, h.ID)
		}
	}
	examined, match := len(heads), map[ident.ID]bool(nil)
	if matcher != nil && len(ids) > 0 {
		var read int
		if match, read, err = matcher.Match(ctx, k.ChannelNo, ids); err != nil {
			return 0, err
		}
		if read < len(ids) {
			examined, places = places[read], places[:read]
		}
	}
	for _, i := range places {
		if matcher == nil || match[heads[i].ID] {
			c.Messages, c.Bytes = c.Messages+1, c.Bytes+heads[i].Bytes
		}
	}
	return examined, nil
}

// extrapolate takes the messages of the replay above last to be as many as those up to it.
func (c *ReplayCount) extrapolate(r *durable.Replay, last ident.ID) {
	read, all := last.Millis()-r.After.Millis(), r.Through.Millis()-r.After.Millis()
	if read > 0 && all > read {
		part := float64(all) / float64(read)
		for _, n := range []*int64{&c.Messages, &c.Bytes, &c.DeadLeftOut} {
			*n = int64(float64(*n) * part)
		}
		c.Estimated = true
	}
}
