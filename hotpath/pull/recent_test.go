package pull

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

type storeReads = verify.Store

// A witness is a store that counts its reads, and outcomes that no one acknowledges in Redis.
type witness struct {
	storeReads
	states map[ident.ID]durable.JobState
	reads  int
}

func (w *witness) Job(_ context.Context, _ *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	w.reads++
	return durable.StoredJob{JobState: w.states[id], Stored: true}, nil
}

func (w *witness) Backlog(context.Context, durable.Consumer, int) (durable.Backlog, error) {
	return durable.Backlog{}, nil
}

func (w *witness) Tasks(context.Context, uint32, []ident.ID) (map[ident.ID]string, error) {
	return nil, nil
}

func (w *witness) PostExchange(context.Context, durable.Exchange) error { return nil }

func (w *witness) JobStates(context.Context, uint32, []ident.ID) (map[ident.ID]durable.JobState, error) {
	w.reads++
	return w.states, nil
}

func (w *witness) ListMessages(context.Context, uint32, ident.ID, int) ([]durable.Message, error) {
	return []durable.Message{{ID: ident.AtMillis(1), ChannelNo: 1, Audience: 1}}, nil
}

func (w *witness) Reopen(_ context.Context, _ uint32, id ident.ID, _ int64) (durable.OpenJob, error) {
	delete(w.states, id)
	return durable.OpenJob{}, nil
}

func (w *witness) Add(r outcome.Entry) { r.Sink.Done(w.Store(context.Background(), r)) }

func (w *witness) Store(_ context.Context, r outcome.Entry) error {
	w.states[r.Outcome.ID] = durable.JobState{Status: durable.Delivered}
	if r.Outcome.Kind == durable.OutcomeDead {
		w.states[r.Outcome.ID] = durable.JobState{Status: durable.Dead}
	}
	return nil
}

// witnessed returns a puller with one job, which is leased by a first worker.
func witnessed(t *testing.T) (p *Puller, w *witness, lease redisq.Lease) {
	p, _ = pullerOf(t, true, filled(1, 10, "x")...)
	w = &witness{states: map[ident.ID]durable.JobState{}}
	p.verifier.Store, p.store, p.outcomes = w, w, w
	lease, err := p.takes(t)
	require.NoError(t, err)
	require.NotEmpty(t, lease.Token)
	w.reads = 0
	return p, w, lease
}

func (p *Puller) to(state, lease string) *move {
	return &move{p: p, ch: portionChannel, k: portionConsumer, id: ident.AtMillis(1), e: update{NextState: state,
		Lease: lease}}
}

// reports ends the job under a lease.
func (p *Puller) reports(t *testing.T, state, lease string) error {
	return p.moveEntry(t.Context(), &fasthttp.RequestCtx{}, portionChannel, portionConsumer, update{
		ID: ident.AtMillis(1).Job(0).String(), NextState: state, Lease: lease})
}

func (p *Puller) takes(t *testing.T) (redisq.Lease, error) {
	return p.to("INFLIGHT", "").take(t.Context())
}

// ages lets time pass for the memory of the job.
func (r recentMoves) ages(by time.Duration) {
	job := recentJob{portionConsumer.No, ident.AtMillis(1)}
	if m, known := r.Get(job); known {
		m.at = m.at.Add(-by)
		r.Put(job, m)
	}
}

func TestAJobThatWasLeasedAMomentAgoIsNoQuestionToTheStore(t *testing.T) {
	p, w, _ := witnessed(t)
	second, err := p.takes(t)
	require.NoError(t, err)
	require.Empty(t, second.Token, "another worker has the lease")
	require.Zero(t, w.reads)

	longer := p.to("INFLIGHT", "")
	longer.e.IncrementalTimeout = 1
	_, err = longer.take(t.Context())
	require.ErrorIs(t, err, errTimeout)
	require.Zero(t, w.reads)

	p.recent.ages(recentFor)
	second, err = p.takes(t)
	require.NoError(t, err)
	require.Empty(t, second.Token)
	require.Equal(t, 1, w.reads)
}

// Another broker stores the delivery, and Redis loses the acknowledgement.
func TestAnAcknowledgementThatWasLostIsFoundBehindTheMemoryOfTheLease(t *testing.T) {
	p, w, _ := witnessed(t)
	w.states[ident.AtMillis(1)] = durable.JobState{Status: durable.Delivered}
	_, err := p.takes(t)
	require.NoError(t, err, "for a second the lease counts")
	p.recent.ages(recentFor)
	_, err = p.takes(t)
	require.ErrorIs(t, err, errTransition)
	stats, err := p.queue.Stats(t.Context(), portionConsumer.No)
	require.NoError(t, err)
	require.Zero(t, stats.Leased+stats.Ready+stats.Delayed, "the job has left Redis")
}

func TestALeaseOfAnotherBrokerIsAQuestionToTheStore(t *testing.T) {
	p, w, lease := witnessed(t)
	_, err := p.queue.Release(t.Context(), portionConsumer.No, []redisq.Lease{lease})
	require.NoError(t, err)
	_, err = p.queue.Claim(t.Context(), portionConsumer.No, 1, time.Minute, redisq.Limits{})
	require.NoError(t, err)
	_, err = p.takes(t)
	require.NoError(t, err)
	require.Equal(t, 1, w.reads)
}

// Redis still has the lease of the first worker, because its acknowledgement follows the outcome, or
// has been acknowledged.
func TestAJobThatWasDeliveredAMomentAgoIsNoQuestionToTheStore(t *testing.T) {
	for name, acknowledged := range map[string]bool{"before its acknowledgement": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			p, w, lease := witnessed(t)
			require.NoError(t, p.reports(t, "DELIVERED", lease.Token))
			if acknowledged {
				_, err := p.queue.AckLeases(t.Context(), portionConsumer.No, []redisq.Lease{lease})
				require.NoError(t, err)
			}
			_, err := p.takes(t)
			require.ErrorIs(t, err, errTransition)
			require.Zero(t, w.reads)

			p.recent.ages(recentFor)
			_, err = p.takes(t)
			require.ErrorIs(t, err, errTransition)
			require.NotZero(t, w.reads)
		})
	}
}

// A worker takes a dead letter out of the DLQ a moment after another has made it one.
func TestAJobThatWasDeclaredDeadAMomentAgoIsTakenOutOfTheDLQ(t *testing.T) {
	p, _, lease := witnessed(t)
	require.NoError(t, p.reports(t, "DEAD", lease.Token))
	_, err := p.queue.AckLeases(t.Context(), portionConsumer.No, []redisq.Lease{lease})
	require.NoError(t, err)
	again, err := p.takes(t)
	require.NoError(t, err)
	require.NotEmpty(t, again.Token)
}

func TestMemoriesOfJobsAreBounded(t *testing.T) {
	r := newRecentMoves()
	for i := range int64(3 * recentJobs) {
		r.leased(1, ident.AtMillis(i+1), "token")
		r.delivered(1, ident.AtMillis(i+1))
	}
	require.Equal(t, recentJobs, r.Len())
	for _, c := range []struct {
		ms    int64
		known bool
	}{{2 * recentJobs, false}, {2*recentJobs + 1, true}, {3 * recentJobs, true}} {
		delivered, _ := r.of(1, ident.AtMillis(c.ms))
		require.Equal(t, c.known, delivered, c.ms)
	}
	delivered, token := r.of(2, ident.AtMillis(3*recentJobs))
	require.False(t, delivered, "of another consumer")
	require.Empty(t, token)
}
