package pull

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A pausedQueue has one job, and its answers take the times given, one after the other.
type pausedQueue struct {
	Queue
	takes  []time.Duration
	claims int
}

func (q *pausedQueue) answer() redisq.Lease {
	time.Sleep(q.takes[q.claims])
	q.claims++
	return redisq.Lease{ID: ident.AtMillis(1), Token: "token", Attempt: q.claims}
}

func (q *pausedQueue) Incarnation() uint64 { return 1 }

func (q *pausedQueue) Claim(context.Context, uint32, int, time.Duration, redisq.Limits) (redisq.Claim, error) {
	return redisq.Claim{Leases: []redisq.Lease{q.answer()}, Whole: true}, nil
}

func (q *pausedQueue) ClaimEach(context.Context, uint32, []redisq.Wish) ([]redisq.Grant, error) {
	return []redisq.Grant{{Lease: q.answer()}}, nil
}

type oneMessage struct {
	verify.Store
	pullStore
}

func (oneMessage) Messages(context.Context, uint32, []ident.ID) ([]durable.Message, error) {
	return []durable.Message{{ID: ident.AtMillis(1), ChannelNo: 1, Audience: 1, Payload: []byte("hello")}}, nil
}

func (o oneMessage) MessagesUpTo(ctx context.Context, channel uint32, ids []ident.ID, _ int) ([]durable.Message,
	int, error) {
	msgs, err := o.Messages(ctx, channel, ids)
	return msgs, len(ids), err
}

func (oneMessage) JobStates(context.Context, uint32, []ident.ID) (map[ident.ID]durable.JobState, error) {
	return nil, nil
}

func (o oneMessage) Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	return durable.StoredJob{Stored: true}, nil
}

func slowPuller(takes ...time.Duration) (*Puller, *pausedQueue) {
	q := &pausedQueue{takes: takes}
	return New(Options{Policies: policy.NewBook(policy.Policy{}), Catalogue: catalogue.New(nil, nil), Queue: q,
		Store: oneMessage{}, Verifier: verifierOf(oneMessage{}, 1<<20), Visible: 5 * time.Second, NowMs: func() int64 {
			return 0
		},
		Touched: func(uint32) {}, Refill: func(uint32) {}, Metrics: metrics.New(prometheus.NewRegistry())}), q
}

// A broker that is paused between a claim and its answer (SIGSTOP, a machine that
// is moved) wakes up with leases that are over: the jobs were given to others.
func TestALeaseThatIsOverIsNotHandedOut(t *testing.T) {
	channel, consumer := &catalogue.Channel{Channel: durable.Channel{No: 1}}, &durable.Consumer{No: 1, ChannelNo: 1,
		Type: durable.Pull}
	for name, c := range map[string]struct {
		takes []time.Duration
		wait  time.Duration
		body  string
		calls int
	}{
		"in time":                        {[]time.Duration{5*time.Second - 1}, 0, `"Attempt":1`, 1},
		"late":                           {[]time.Duration{5 * time.Second}, 0, `{"Result":[]}`, 1},
		"late, and there is time to ask": {[]time.Duration{6 * time.Second, 0}, 20 * time.Second, `"Attempt":2`, 2},
	} {
		t.Run("batch, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, queue := slowPuller(c.takes...)
				var rc fasthttp.RequestCtx
				require.NoError(t, p.claimJobs(&rc, &catalogue.Standing{Channel: channel, Consumer: consumer},
					claimRequest{limit: 10, wait: c.wait, timeout: 5 * time.Second}))
				require.Contains(t, string(rc.Response.Body()), c.body)
				require.Equal(t, c.calls, queue.claims)
			})
		})
	}
	for name, c := range map[string]struct {
		takes time.Duration
		extra int64
		err   error
	}{
		"in time":                   {5*time.Second - 1, 0, nil},
		"late":                      {5 * time.Second, 0, errLeaseOver},
		"in time of a longer lease": {5 * time.Second, 1, nil},
	} {
		t.Run("single, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := slowPuller(c.takes)
				m := move{p: p, ch: channel, k: consumer, id: ident.AtMillis(1), e: update{NextState: "INFLIGHT",
					IncrementalTimeout: c.extra}}
				lease, err := m.take(t.Context())
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					require.Empty(t, lease.Token)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "token", lease.Token)
			})
		})
	}
}

// An overtaken is a store and a queue that does not know the only job. While the job is
// on its way into the queue another worker gets it, ends it, and the queue forgets it.
type overtaken struct {
	oneMessage
	Queue
	ended bool
	acked []ident.ID
}

func (o *overtaken) Incarnation() uint64 { return 1 }

func (o *overtaken) ListMessages(ctx context.Context, channel uint32, id ident.ID, _ int) ([]durable.Message, error) {
	return o.Messages(ctx, channel, []ident.ID{id})
}

func (o *overtaken) JobStates(_ context.Context, _ uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error) {
	if !o.ended {
		return nil, nil
	}
	return map[ident.ID]durable.JobState{ids[0]: {Status: durable.Delivered}}, nil
}

func (o *overtaken) Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	states, err := o.JobStates(ctx, k.No, []ident.ID{id})
	return durable.StoredJob{JobState: states[id], Stored: true}, err
}

func (o *overtaken) ClaimEach(_ context.Context, _ uint32, wishes []redisq.Wish) ([]redisq.Grant, error) {
	if !wishes[0].Insert {
		return []redisq.Grant{{Before: redisq.Standing{State: redisq.Missing}}}, nil
	}
	o.ended = true
	return []redisq.Grant{{Lease: redisq.Lease{ID: wishes[0].Job.ID, Token: "token", Attempt: 1,
		Flags: redisq.FlagVerify}}}, nil
}

func (o *overtaken) AckLeases(_ context.Context, _ uint32, leases []redisq.Lease) ([]bool, error) {
	for _, l := range leases {
		o.acked = append(o.acked, l.ID)
	}
	return make([]bool, len(leases)), nil
}

func TestAJobThatIsOverByTheTimeItIsPutBackIsNotHandedOut(t *testing.T) {
	both := &overtaken{}
	p := New(Options{Policies: policy.NewBook(policy.Policy{}), Catalogue: catalogue.New(nil, nil), Queue: both,
		Store: both, Verifier: verifierOf(both, 1<<20), Visible: 5 * time.Second, NowMs: func() int64 { return 0 },
		Touched: func(uint32) {}, Refill: func(uint32) {}, Metrics: metrics.New(prometheus.NewRegistry())})
	m := move{p: p, ch: &catalogue.Channel{Channel: durable.Channel{No: 1}}, k: &durable.Consumer{No: 1, ChannelNo: 1,
		Type: durable.Pull},
		id: ident.AtMillis(1), e: update{NextState: "INFLIGHT"}}
	lease, err := m.take(t.Context())
	require.ErrorIs(t, err, errTransition)
	require.Empty(t, lease.Token)
	require.Equal(t, []ident.ID{m.id}, both.acked)
}
