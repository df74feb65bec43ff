package push

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/redisq"
)

// A lossRig is a dispatcher with one consumer that answers when it is told to,
// on a queue that loses its memory.
type lossRig struct {
	*Dispatcher
	verify.Store // of which two methods are replaced
	t            *testing.T
	server       *miniredis.Miniredis
	redisq       *redisq.Queue // as the dispatcher has it
	other        *redisq.Queue // of another broker
	committer    *outcome.Committer
	answer       chan int // the status of one request
	mu           sync.Mutex
	payload      []byte   // of every message
	posted       []string // job-attempt
	recorded     []durable.Outcome
	asked        atomic.Int64                  // how often the store was asked what it knows of jobs
	known        map[ident.ID]durable.JobState // what the store says from the second question on
	tells        chan struct{}                 // the store answers that when it is closed; nil: at once
	stop         context.CancelFunc            // of the dispatcher
	over         chan struct{}                 // closed when its Run has returned
}

func (r *lossRig) Target(egress.Rule, string, string) (Target, error) { return Posting(r), nil }

func (r *lossRig) Post(req *fasthttp.Request, _ time.Duration) egress.Result {
	r.mu.Lock()
	r.posted = append(r.posted, string(req.Header.Peek("X-Request-ID")))
	r.mu.Unlock()
	return egress.Result{Status: <-r.answer, RetryAfter: -1, Sent: true}
}

func (r *lossRig) posts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.posted)
}

func (r *lossRig) Messages(_ context.Context, _ uint32, ids []ident.ID) ([]durable.Message, error) {
	out := make([]durable.Message, len(ids))
	for i, id := range ids {
		out[i] = durable.Message{ID: id, ChannelNo: 1, Audience: 1, Payload: r.payload}
	}
	return out, nil
}

func (r *lossRig) MessagesUpTo(ctx context.Context, channel uint32, ids []ident.ID, _ int) ([]durable.Message,
	int, error) {
	msgs, err := r.Messages(ctx, channel, ids)
	return msgs, len(ids), err
}

func (r *lossRig) JobStates(ctx context.Context, _ uint32, _ []ident.ID) (map[ident.ID]durable.JobState, error) {
	if n := r.asked.Add(1); r.known != nil && n > 1 {
		return r.known, nil
	}
	if r.tells != nil {
		select {
		case <-r.tells:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, nil
}

func (r *lossRig) Record(_ context.Context, rows []durable.Outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = append(r.recorded, rows...)
	return nil
}

// newLossRig has two requests in flight and room for one job more.
func newLossRig(t *testing.T) *lossRig {
	log := slog.New(slog.DiscardHandler)
	r := &lossRig{t: t, server: miniredis.RunT(t), answer: make(chan int)}
	open := func() *redisq.Queue {
		client := redis.NewClient(&redis.Options{Addr: r.server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return redisq.New(client, redisq.Options{Logger: log})
	}
	r.redisq, r.other = open(), open()
	metrics := metrics.New(prometheus.NewRegistry())
	r.committer = outcome.New(outcome.Options{Store: r, Queue: r.redisq, Metrics: metrics, Log: log})
	r.Dispatcher = New(Options{
		Queue: r.redisq, Catalogue: catalogue.New(&memstore.Store{}, log), Deliverer: r, Verifier: verifierOf(r,
			1<<20), Outcomes: r.committer,
		Pace: noPace{}, NowMs: func() int64 { return time.Now().UnixMilli() }, Touched: func(uint32) {

		}, Refill: func(uint32) {}, Log: log, Metrics: metrics,
		Settings: Settings{Lease: time.Minute, Policies: policy.NewBook(policy.Policy{Timeout: 10 * time.Second,
			MaxRetries: 2, Backoff: policy.Waits(time.Hour), MaxDelay: time.Hour, RetryShare: 100}),
			Concurrency: 100, PerConsumer: 2},
	})
	ctx, cancel := context.WithCancel(context.Background())
	running, stop := context.WithCancel(ctx)
	r.stop, r.over = stop, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(running); close(r.over) })
	wg.Go(func() { _ = r.committer.Run(ctx, time.Second) })
	t.Cleanup(func() {
		cancel()
		close(r.answer) // status 0 for who still waits
		wg.Wait()
	})
	return r
}

// begin offers jobs, of which the first was attempted before, and waits until two
// are under way and one is claimed.
func (r *lossRig) begin() []ident.ID {
	r.t.Helper()
	ids := []ident.ID{ident.AtMillis(1), ident.AtMillis(2), ident.AtMillis(3)}
	_, err := r.redisq.Enqueue(r.t.Context(), 1, []redisq.Job{{ID: ids[0], Priority: 2, Attempts: 1},
		{ID: ids[1], Priority: 1}, {ID: ids[2]}}, redisq.Recovered)
	require.NoError(r.t, err)
	r.Learn(&durable.Consumer{No: 1, ChannelNo: 1, ID: "k", Type: durable.Push, Version: 1})
	r.eventually(func() bool { return r.posts() == 2 && r.standings(ids)[2].State == redisq.Leased && r.holding() == 3 })
	return ids
}

func (r *lossRig) holding() int {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	return len(r.inFlight.byLane[r.lanes[1]])
}

func (r *lossRig) standings(ids []ident.ID) []redisq.Standing {
	r.t.Helper()
	out, err := r.other.Probe(r.t.Context(), 1, ids)
	require.NoError(r.t, err)
	return out
}

func (r *lossRig) eventually(condition func() bool) {
	r.t.Helper()
	require.Eventually(r.t, condition, 30*time.Second, 5*time.Millisecond)
}

func TestALossGivesRedisBackTheLeasesOfWhatIsUnderWay(t *testing.T) {
	r := newLossRig(t)
	ids := r.begin()
	before := r.standings(ids)
	r.server.FlushAll()
	require.Equal(t, redisq.Missing, r.standings(ids)[0].State)
	r.SuspectLoss(1)
	r.eventually(func() bool { return r.standings(ids)[2].State == redisq.Leased })
	for i, s := range r.standings(ids) {
		require.Equal(t, redisq.Leased, s.State)
		require.Equal(t, before[i].Attempts, s.Attempts)
		require.Equal(t, before[i].Token, s.Token)
		require.Equal(t, before[i].Priority, s.Priority)
	}
	// The outcomes find their leases: two jobs wait out their backoff, one is over.
	r.answer <- 500
	r.answer <- 500
	r.answer <- 204
	r.eventually(func() bool {
		s := r.standings(ids)
		return s[0].State == redisq.Delayed && s[1].State == redisq.Delayed && s[2].State == redisq.Missing
	})
	require.Equal(t, 2, r.standings(ids)[0].Attempts)
	require.Equal(t, 3, r.posts())
	require.Zero(t, r.holding())
}

// Another broker was faster: what was not sent yet is not sent.
func TestAJobThatAnotherBrokerGotAfterALossIsNotSent(t *testing.T) {
	r := newLossRig(t)
	ids := r.begin()
	r.server.FlushAll()
	_, err := r.other.Enqueue(t.Context(), 1, []redisq.Job{{ID: ids[2]}}, redisq.Recovered)
	require.NoError(t, err)
	c, err := r.other.Claim(t.Context(), 1, 1, time.Minute, redisq.Limits{})
	require.NoError(t, err)
	require.Len(t, c.Leases, 1)
	r.SuspectLoss(1)
	r.eventually(func() bool { return r.standings(ids)[0].State == redisq.Leased })
	r.eventually(func() bool { // the answer to the holder is on its way
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, v := range r.inFlight.of(r.lanes[1]) {
			if v.lost.Load() {
				return v.lease.ID == ids[2]
			}
		}
		return false
	})
	r.answer <- 204
	r.answer <- 204
	r.eventually(func() bool { return r.holding() == 0 })
	require.Equal(t, 2, r.posts())
	require.Equal(t, c.Leases[0].Token, r.standings(ids)[2].Token)
}

// A lateRestorer is a queue whose next restoration runs after the deliveries have ended.
type lateRestorer struct {
	*redisq.Queue
	begun, ended chan struct{}
}

func (q lateRestorer) RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease,
	lease time.Duration) ([]bool, error) {
	q.begun <- struct{}{}
	<-q.ended
	return q.Queue.RestoreLeases(ctx, consumer, leases, lease)
}

func TestDeliveriesThatEndDuringARestorationLeaveNoLeaseBehind(t *testing.T) {
	r := newLossRig(t)
	queue := lateRestorer{r.redisq, make(chan struct{}), make(chan struct{})}
	r.queue = queue
	end := sync.OnceFunc(func() { close(queue.ended) })
	t.Cleanup(end)
	ids := r.begin()
	over := make(chan struct{})
	go func() {
		r.restore(context.Background(), r.lane(1))
		close(over)
	}()
	<-queue.begun
	// what is not sent is given back
	r.Learn(&durable.Consumer{No: 1, ChannelNo: 1, ID: "k", Type: durable.Push, Version: 2, State: durable.StatePaused})
	r.answer <- 500
	r.answer <- 204
	r.eventually(func() bool {
		s := r.standings(ids)
		states := map[redisq.State]int{}
		for i := range s {
			states[s[i].State]++
		}
		return r.holding() == 0 && states[redisq.Delayed] == 1 && states[redisq.Missing] == 1 && states[redisq.Ready] == 1
	})
	before := r.standings(ids)
	end()
	<-over
	require.Equal(t, before, r.standings(ids))
}

// A lane without room claims nothing, and notices a loss all the same.
func TestALossIsNoticedByALaneThatIsFull(t *testing.T) {
	r := newLossRig(t)
	r.redisq.OnLost(r.SuspectLoss)
	ids := r.begin()
	r.server.FlushAll()
	r.eventually(func() bool { return r.standings(ids)[2].State == redisq.Leased })
}
