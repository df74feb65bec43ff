package accept

import (
	"context"
	"errors"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// stepWithin bounds the transaction of one step of a bulk.
const stepWithin = 2 * intake.AnswerWithin

// A StepStore is the part of durable.Store that stores steps of bulks.
type StepStore interface {
	StepBulk(ctx context.Context, node durable.NodeLease, step *durable.BulkStep) error
}

// StoreBulk stores a step of a bulk of a producer, inside the bounds of what may wait for the store. The step has
// a transaction of its own, so no publish of a client waits for its rows. An error means that
// nothing of the step is stored, or that the store holds the step and this owner has lost the bulk.
//
// body are the bytes of the bulk's body, which the producer stores until the bulk is over: its rows
// take no room twice.
func (s *Submitter) StoreBulk(ctx context.Context, k share.Key, store StepStore, step *durable.BulkStep,
	body int64) error {
	taken, err := s.takeStep(step, body)
	if err != nil {
		return err
	}
	err = s.storeStep(ctx, k, store, step)
	taken.tookIn(step, err)
	return err
}

// storeStep is StoreBulk for a step that has its room.
func (s *Submitter) storeStep(ctx context.Context, k share.Key, store StepStore, step *durable.BulkStep) error {
	n, held := max(1, len(step.Messages)+len(step.Later)), int64(0)
	for _, m := range step.Messages {
		held += int64(m.Bytes())
	}
	for _, m := range step.Later {
		held += int64(m.Bytes())
	}
	if !s.Admit(ctx, Terms{Patience: LinePatience, Lines: true}, k, n, held) {
		return problem.ErrOverloaded
	}
	defer s.Leave(k, n, held)
	// A step that has begun ends, also while the broker stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepWithin)
	defer cancel()
	failpoint.At(failpoint.BeforeBulkStep)
	err := s.committer.bulk(ctx, store, step)
	failpoint.At(failpoint.AfterBulkStep)
	if err != nil {
		return err
	}
	for i := range step.Messages {
		if errors.Is(step.Results[i], durable.ErrDuplicate) {
			s.metrics.Repeats.Inc()
		}
	}
	for i, m := range step.Later {
		if step.Results[len(step.Messages)+i] == nil {
			s.scheduler.scheduled(m.DueMs)
		}
	}
	return nil
}

// bulk gives the messages of a step their IDs and stores the step.
func (c *committer) bulk(ctx context.Context, s StepStore, step *durable.BulkStep) error {
	err := storeAll(ctx, c, []*durable.BulkStep{step}, c.prepareBulk, func(lease durable.NodeLease,
		_ []*durable.BulkStep) []error {
		return []error{guard.Do("step of a bulk", func() error { return s.StepBulk(ctx, lease, step) })}
	})[0]
	if err == nil {
		c.bulkStored(step)
	}
	return err
}

// prepareBulk gives the messages of a step their IDs, in one block, and their recipients. A row was
// addressed when its bulk was accepted; a consumer that was deleted since is not addressed.
func (c *committer) prepareBulk(step *durable.BulkStep) error {
	if len(step.Messages) > 0 {
		first := c.ids.Block(len(step.Messages))
		for i, m := range step.Messages {
			if err := c.bulkRefusal(m); err != nil {
				return err
			}
			m.ID = first.After(i)
			if ch := c.catalogue.ChannelByNo(m.ChannelNo); ch != nil {
				if m.Addressed != "" && ch.Deletions() {
					m.Addressed = stillThere(ch, m.Addressed)
				}
				c.filters.one(ch, m)
				step.Audience = ch.Audience
			}
		}
	}
	for _, m := range step.Later {
		if err := c.bulkRefusal(&m.Message); err != nil {
			return err
		}
		m.ID = c.ids.Next()
	}
	return nil
}

// bulkRefusal is the refusal of a row of a bulk: it is for the channel and the producer of the request
// only, and not for others that have their IDs now.
func (c *committer) bulkRefusal(m *durable.Message) error {
	ch, producer := c.catalogue.ChannelByNo(m.ChannelNo), c.catalogue.ProducerByNo(m.ProducerNo)
	switch {
	case ch == nil || ch.Deleted:
		return catalogue.ErrUnknownChannel
	case producer == nil || producer.Deleted:
		return catalogue.ErrUnknownProducer
	}
	return ch.Refusal()
}

// bulkStored hands the stored messages of a step over to the fan-out.
func (c *committer) bulkStored(step *durable.BulkStep) {
	stored := make([]*durable.Message, 0, len(step.Messages))
	for i, m := range step.Messages {
		if step.Results[i] == nil {
			stored = append(stored, m)
		}
	}
	c.stored(stored)
}

// Commits counts the transactions with messages of clients. A caller that sees it grow knows that
// clients publish at the same time.
func (s *Submitter) Commits() int64 { return s.committer.commits.Load() }

// NewID returns an ID for a bulk.
func (s *Submitter) NewID() ident.ID { return s.committer.ids.Next() }
