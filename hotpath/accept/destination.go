package accept

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/problem"
)

// What the committer does where the copy of the catalogue is, or may be, older than the store.

// repeatStale inserts again the messages of a batch that the store refused as stale.
func (c *committer) repeatStale(ctx context.Context, msgs []*write, results []error) []error {
	var again []*write
	var index []int
	for i, err := range results {
		if errors.Is(err, durable.ErrStale) {
			again, index = append(again, msgs[i]), append(index, i)
		}
	}
	if err := c.refresh(ctx, 0); err != nil {
		for _, i := range index {
			results[i] = err
		}
		return results
	}
	for j, err := range c.insert(ctx, again) {
		results[index[j]] = err
	}
	return results
}

// refresh updates the catalogue and the node lease after ErrStale.
func (c *committer) refresh(ctx context.Context, try int) error {
	if try > 0 { // the first refresh is almost always enough
		select {
		case <-time.After(time.Duration(min(try, 20)) * 5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := c.catalogue.Refresh(ctx); err != nil {
		return err
	}
	return c.node.Renew(ctx)
}

// insertOthers refuses the messages of paused and deleted channels and of deleted producers, and
// stores the others. The insert of a message checks this again: a broker with an old copy stores
// none of them.
func (c *committer) insertOthers(ctx context.Context, writes []*write) []error {
	if err := c.catalogue.Refresh(ctx); err != nil { // another broker may have resumed the channels
		return slices.Repeat([]error{err}, len(writes))
	}
	return c.insertSome(ctx, writes, func(w *write) error { return c.refusal(w.msg, w.accepted) })
}

// insertSome stores the messages without a refusal.
func (c *committer) insertSome(ctx context.Context, writes []*write, refusal func(*write) error) []error {
	results := make([]error, len(writes))
	var open []*write
	var index []int
	for i, w := range writes {
		if results[i] = refusal(w); results[i] == nil {
			open, index = append(open, w), append(index, i)
		}
	}
	if len(open) == 0 {
		return results
	}
	for j, err := range c.insert(ctx, open) {
		results[index[j]] = err
	}
	return results
}

// anyProducerDeleted reports whether the copy of the catalogue shows a producer of the messages
// as deleted, other than of those that were accepted before.
func (c *committer) anyProducerDeleted(writes []*write) bool {
	return c.catalogue.DeletedProducers() && slices.ContainsFunc(writes, func(w *write) bool {
		p := c.catalogue.ProducerByNo(w.msg.ProducerNo)
		return p != nil && p.Deleted && !w.accepted
	})
}

// refusal returns the reason why a message may not be stored, by the copy of the catalogue. The
// message was authorised from an earlier copy. Where its channel or producer was deleted since,
// and there is another one with the same ID and token, the message is for that one. One that was
// accepted before stays that of its producer.
func (c *committer) refusal(m *durable.Message, accepted bool) error {
	ch := c.catalogue.ChannelByNo(m.ChannelNo)
	if ch == nil { // it is not in the backup that was restored meanwhile
		return catalogue.ErrUnknownChannel
	}
	old := ch
	if ch.Deleted {
		if m.Occurrence != nil { // the deletion ended the schedules of the channel
			return catalogue.ErrUnknownChannel
		}
		now := c.catalogue.Channel(ch.ID)
		if now == nil || now.Token != ch.Token {
			return catalogue.ErrUnknownChannel
		}
		m.ChannelNo, ch = now.No, now
		m.Audience = 0 // not judged
	}
	if m.Addressed != "" {
		if err := c.readdress(old, ch, m); err != nil {
			return err
		}
	}
	if p := c.catalogue.ProducerByNo(m.ProducerNo); p != nil && p.Deleted && !accepted {
		if m.Occurrence != nil { // the deletion ended the schedules of the producer
			return catalogue.ErrUnknownProducer
		}
		now := c.catalogue.Producer(p.ID)
		if now == nil || now.Token != p.Token || now.PublishSecret != "" {
			return catalogue.ErrUnknownProducer
		}
		m.ProducerNo = now.No
	}
	if ch.Paused {
		return problem.ErrChannelPaused
	}
	return nil
}
