package accept

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// schedulers is the number of concurrent transactions of schedules. Producers get them in turn.
const schedulers = 8

// A scheduler stores messages that are sent later.
type scheduler struct {
	scheduled func(dueMs int64)
	slots     *share.Bound
}

func newScheduler(o Options) scheduler {
	s := scheduler{scheduled: o.Scheduled, slots: share.New(share.Options{Name: "schedules", Most: schedulers})}
	if s.scheduled == nil {
		s.scheduled = func(int64) {}
	}
	return s
}

// Schedule stores schedules, inside the bounds of what may wait for the store, and returns one
// result each.
func (s *Submitter) Schedule(ctx context.Context, t Terms, batch []*durable.Scheduled) []error {
	k, n, bytes := t.account(batch[0].ProducerNo), len(batch), -t.Counted
	for _, m := range batch {
		bytes += int64(m.Bytes())
	}
	var results []error
	err := s.inTurn(ctx, t, k, n, bytes, func(ctx context.Context) { results = s.storeSchedules(ctx, batch) })
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	failpoint.At(failpoint.AfterSchedule)
	for i, err := range results {
		if err == nil {
			s.scheduler.scheduled(batch[i].DueMs)
		}
	}
	return results
}

// inTurn calls store with a place among the transactions of schedules, of n schedules with so many bytes.
func (s *Submitter) inTurn(ctx context.Context, t Terms, k share.Key, n int, bytes int64,
	store func(context.Context)) error {
	if !s.Admit(ctx, t, k, n, bytes) {
		return problem.ErrOverloaded
	}
	defer s.Leave(k, n, bytes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), intake.AnswerWithin)
	defer cancel()
	if s.scheduler.slots.Wait(ctx, k, 1) != nil {
		return problem.ErrOverloaded
	}
	defer s.scheduler.slots.Give(k, 1)
	store(ctx)
	return nil
}

// ChangeScheduled changes a schedule, inside the bounds of what may wait for the store. bytes are those of
// its new content that are not counted yet.
func (s *Submitter) ChangeScheduled(ctx context.Context, t Terms, k share.Key, bytes int64,
	change durable.ScheduleChange) (now *durable.Scheduled, err error) {
	full := s.inTurn(ctx, t, k, 1, bytes, func(ctx context.Context) {
		now, err = s.committer.store.ChangeScheduled(ctx, change)
	})
	if full != nil {
		err = full
	}
	if err != nil {
		return nil, err
	}
	failpoint.At(failpoint.AfterSchedule)
	s.scheduler.scheduled(now.DueMs)
	return now, nil
}

// schedule gives each schedule its ID and stores them.
func (c *committer) schedule(ctx context.Context, batch []*durable.Scheduled) []error {
	for _, m := range batch {
		m.ID = c.ids.Next()
	}
	prepare := func(m *durable.Scheduled) error {
		_, err := c.destination(&m.Message, false)
		return err
	}
	return storeAll(ctx, c, batch, prepare, func(lease durable.NodeLease, batch []*durable.Scheduled) []error {
		return c.store.Schedule(ctx, lease, batch)
	})
}
