package accept

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/quota"
)

// storeSchedules stores those schedules for which their producers have room.
func (s *Submitter) storeSchedules(ctx context.Context, batch []*durable.Scheduled) []error {
	results := make([]error, len(batch))
	taken := make([]quota.Taken, len(batch))
	todo := make([]*durable.Scheduled, 0, len(batch))
	for i, m := range batch {
		if taken[i], results[i] = s.quota.Take(m.ProducerNo, m.Kept(), 1, 0); results[i] == nil {
			todo = append(todo, m)
		}
	}
	if len(todo) == 0 {
		return results
	}
	stored := s.committer.schedule(ctx, todo)
	for i, m := range batch {
		if results[i] == nil {
			results[i], stored = stored[0], stored[1:]
			taken[i].Schedule(m.ID, results[i] == nil)
		}
	}
	return results
}

// A stepTaken is the room that a step of a bulk takes.
type stepTaken struct {
	messages quota.Taken
	later    []quota.Taken
}

// takeStep takes the room of a step, all of it or none.
func (s *Submitter) takeStep(step *durable.BulkStep, body int64) (t stepTaken, err error) {
	bytes := int64(0)
	for _, m := range step.Messages {
		bytes += m.Kept()
	}
	if len(step.Messages) > 0 {
		if t.messages, err = s.quota.Take(step.Messages[0].ProducerNo, bytes, 0, body); err != nil {
			return t, err
		}
	}
	for _, m := range step.Later {
		one, err := s.quota.Take(m.ProducerNo, m.Kept(), 1, body)
		if err != nil {
			t.messages.Messages(0, ident.ID{}, 0)
			for _, before := range t.later {
				before.Schedule(ident.ID{}, false)
			}
			return t, err
		}
		t.later = append(t.later, one)
	}
	return t, nil
}

// tookIn tells the quota what became of a step.
func (t stepTaken) tookIn(step *durable.BulkStep, failed error) {
	bytes := int64(0)
	var channel uint32
	var last ident.ID
	for i, m := range step.Messages {
		if failed == nil && step.Results[i] == nil {
			bytes += m.Kept()
		}
		channel, last = m.ChannelNo, m.ID
	}
	t.messages.Messages(channel, last, bytes)
	for i, m := range step.Later {
		t.later[i].Schedule(m.ID, failed == nil && step.Results[len(step.Messages)+i] == nil)
	}
}
