package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// replayCounted is the number of messages that one statement of a count reads, and countReplayFor
	// the time after which a count extrapolates.
	replayCounted  = 2000
	countReplayFor = 3 * time.Second
)

// A ReplayStore is the part of durable.Store that counts replays.
type ReplayStore interface {
	Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Sized, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
}

// A ReplayCount is the size of a replay.
type ReplayCount struct {
	Messages, Bytes int64
	Estimated       bool
}

// CountReplay counts the messages that a replay of the consumer would repeat now. It reads them in
// stretches, without payloads. After countReplayFor it stops, and takes the rest of the time to have
// as many messages as the part that it has read.
func CountReplay(ctx context.Context, s ReplayStore, k *durable.Consumer, r *durable.Replay) (c ReplayCount, err error) {
	for began, after := time.Now(), r.After; ; {
		heads, err := s.Sizes(ctx, k.ChannelNo, after, r.Through, replayCounted)
		if err != nil {
			return c, err
		}
		ids := make([]ident.ID, 0, len(heads))
		for _, h := range heads {
			if k.Concerns(h.Head) {
				ids = append(ids, h.ID)
			}
		}
		states, err := s.JobStates(ctx, k.No, ids)
		if err != nil {
			return c, err
		}
		for _, h := range heads {
			if k.Concerns(h.Head) && r.Of.Matches(states[h.ID].Status) {
				c.Messages, c.Bytes = c.Messages+1, c.Bytes+h.Bytes
			}
		}
		if len(heads) < replayCounted {
			return c, nil
		}
		after = heads[len(heads)-1].ID
		if time.Since(began) > countReplayFor {
			read, all := after.Millis()-r.After.Millis(), r.Through.Millis()-r.After.Millis()
			if read > 0 && all > read {
				part := float64(all) / float64(read)
				c = ReplayCount{int64(float64(c.Messages) * part), int64(float64(c.Bytes) * part), true}
			}
			return c, nil
		}
	}
}
