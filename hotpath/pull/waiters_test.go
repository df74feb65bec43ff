package pull

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

func TestAWakeUpGoesToOneWaiterAndIsPassedOn(t *testing.T) {
	w := waiters{places: intake.NewWaiters()}
	a, b := w.join(1, nil), w.join(1, nil)
	w.Wake(1)
	require.Len(t, a.wake, 1)
	require.Empty(t, b.wake)
	w.Wake(1)
	require.Len(t, b.wake, 1, "the second wake-up is not lost on the first")
	<-b.wake
	a.leave() // unused: the next one gets it
	require.Len(t, b.wake, 1)
	require.Len(t, b.lead, 1, "it is the first now")
	b.leave()
	require.Empty(t, w.byNo)
	require.Zero(t, w.places.Taken())
	w.Wake(1)
}

// A dueQueue has the same job again and again, for each consumer at the times given.
type dueQueue struct {
	Queue
	mu     sync.Mutex
	due    map[uint32][]time.Time
	claims int
}

func (q *dueQueue) Incarnation() uint64 { return 1 }

func (q *dueQueue) Claim(_ context.Context, consumer uint32, _ int, _ time.Duration, _ redisq.Limits) (redisq.Claim,
	error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	c := redisq.Claim{Whole: true}
	due := q.due[consumer]
	if len(due) > 0 && !due[0].After(time.Now()) {
		c.Leases, due = []redisq.Lease{{ID: ident.AtMillis(1), Token: "token", Attempt: 1}}, due[1:]
		q.due[consumer] = due
	}
	if len(due) > 0 {
		c.NextDue = max(time.Until(due[0]), 1)
	}
	return c, nil
}

// A crowd are clients whose claims wait.
type crowd struct {
	p     *Puller
	queue *dueQueue
	wg    sync.WaitGroup
	mu    sync.Mutex
	got   []time.Duration // when a client got a job, since the beginning
	began time.Time
}

func newCrowd(places *share.Bound) *crowd {
	c := &crowd{queue: &dueQueue{due: map[uint32][]time.Time{}}, began: time.Now()}
	c.p = New(Options{Policies: policy.NewBook(policy.Policy{}), Catalogue: catalogue.New(nil, nil), Queue: c.queue,
		Store: oneMessage{}, Verifier: verifierOf(oneMessage{}, 1<<20),
		Visible: time.Minute, NowMs: func() int64 { return 0 }, Touched: func(uint32) {}, Refill: func(uint32) {

		}, Metrics: metrics.New(prometheus.NewRegistry()), Waiters: places})
	return c
}

func (c *crowd) claim(consumer uint32) (*fasthttp.RequestCtx, error) {
	var rc fasthttp.RequestCtx
	err := c.p.claimJobs(&rc, &catalogue.Standing{Consumer: &durable.Consumer{No: consumer, ChannelNo: 1,
		Type: durable.Pull}}, claimRequest{limit: 1, wait: maxClaimWait, timeout: time.Minute})
	return &rc, err
}

// wait begins a claim.
func (c *crowd) wait(t *testing.T, consumer uint32) {
	c.wg.Go(func() {
		rc, err := c.claim(consumer)
		if err != nil {
			t.Error(err)
		}
		if string(rc.Response.Body()) != `{"Result":[]}`+"\n" {
			c.mu.Lock()
			c.got = append(c.got, time.Since(c.began))
			c.mu.Unlock()
		}
	})
}

func (c *crowd) claimsSince(before int) int {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	return c.queue.claims - before
}

func TestOfAConsumersWaitingClaimsOneLooksForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(nil)
		c.queue.due[1] = []time.Time{c.began.Add(time.Hour)}
		for range 300 {
			c.wait(t, 1)
			synctest.Wait()
		}
		before := c.claimsSince(0)
		require.Equal(t, 2*longLine, before, "the first ones look before and after they joined, and the others are not "+
			"the next")
		time.Sleep(10*time.Second + time.Millisecond)
		require.Equal(t, 10, c.claimsSince(before))
		c.wg.Wait()
		require.Empty(t, c.got)
	})
}

func TestWaitingClaimsOfManyConsumersLookFiftyTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(nil)
		for consumer := range uint32(300) {
			c.wait(t, consumer+1)
			time.Sleep(time.Millisecond)
		}
		before := c.claimsSince(0)
		time.Sleep(12 * time.Second)
		require.LessOrEqual(t, c.claimsSince(before), 12*claimsPerSecond)
		require.GreaterOrEqual(t, c.claimsSince(before), 300, "work without a wake-up is found")
		woken := c.claimsSince(0)
		c.p.Wake(7)
		synctest.Wait()
		require.Equal(t, 1, c.claimsSince(woken), "a wake-up is immediate")
		c.wg.Wait()
	})
}

func TestJobsThatBecomeDueGoToWaitingClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(nil)
		due := []time.Duration{300 * time.Millisecond, 310 * time.Millisecond, 4 * time.Second, 4*time.Second + 1}
		for _, d := range due {
			c.queue.mu.Lock()
			c.queue.due[1] = append(c.queue.due[1], c.began.Add(d))
			c.queue.mu.Unlock()
			c.wait(t, 1)
		}
		c.wg.Wait()
		require.Equal(t, due, c.got, "nobody woke them")
	})
}

func TestAClaimBeyondTheShareOfItsConsumerDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := share.New(share.Options{Most: 4})
		c := newCrowd(places)
		c.wait(t, 1)
		c.wait(t, 1)
		synctest.Wait()
		rc, err := c.claim(1)
		require.NoError(t, err)
		require.Zero(t, time.Since(c.began))
		require.Equal(t, `{"Result":[]}`+"\n", string(rc.Response.Body()))
		require.Equal(t, "5", string(rc.Response.Header.Peek("Retry-After")))

		c.wait(t, 2)
		synctest.Wait()
		require.EqualValues(t, 3, places.Taken(), "another consumer's claim waits")
		c.queue.mu.Lock()
		c.queue.due[2] = []time.Time{time.Now()}
		c.queue.mu.Unlock()
		c.p.Wake(2)
		c.wg.Wait()
		require.Equal(t, []time.Duration{0}, c.got)
		require.Zero(t, places.Taken())
	})
}
