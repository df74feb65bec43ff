package why

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A parkedJob is a store and a queue with one open job, whose predecessor in its ordering key is over.
type parkedJob struct {
	Store
	Queue
	id      ident.ID
	now, at time.Time // of the queue; when a broker looks at the job again
}

func (s *parkedJob) PlightOf(context.Context, uint32, ident.ID, uint32) (durable.Plight, error) {
	return durable.Plight{Head: durable.Head{ID: s.id, Audience: 1}}, nil
}

func (s *parkedJob) Blocker(context.Context, durable.Consumer, ident.ID, bool) (durable.Plight, error) {
	return durable.Plight{}, durable.ErrNotFound
}

func (s *parkedJob) Outlook(context.Context, uint32, ident.ID, redisq.Limits) (redisq.Outlook, error) {
	place := redisq.Place{Standing: redisq.Standing{State: redisq.Delayed, At: s.at}, Parked: true}
	return redisq.Outlook{Now: s.now, Job: place}, nil
}

// A Redis that goes back in time, or brokers that are away, leave a job parked longer than it was to be.
func TestAJobThatNothingBlocksAnyMoreHasNoEndThatHasPassed(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000).UTC()
	s := &parkedJob{id: ident.NewGenerator(1, now.UnixMilli).Next(), now: now}
	e := New(Options{Store: s, Queue: s, Policies: policy.NewBook(policy.Policy{}), NowMs: now.UnixMilli})
	job := func(at time.Time) (code string, until *time.Time) {
		s.at = at
		w, _, found, err := e.Job(t.Context(), &catalogue.Channel{}, &durable.Consumer{Type: durable.Push}, s.id)
		require.NoError(t, err)
		require.True(t, found)
		require.Len(t, w.Reasons, 1)
		if u := w.Reasons[0].Until; u != nil {
			until = &u.Time
		}
		return w.Reasons[0].Code, until
	}
	code, until := job(now.Add(time.Second))
	require.Equal(t, string(Due), code)
	require.Equal(t, now.Add(time.Second), *until)
	for _, passed := range []time.Duration{0, time.Minute} {
		code, until = job(now.Add(-passed))
		require.Equal(t, string(Due), code)
		require.Nil(t, until)
	}
}
