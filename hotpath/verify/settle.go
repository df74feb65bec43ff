package verify

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// Leases is the part of redisq.Queue that ends leases.
type Leases interface {
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
}

// An Order takes the jobs that wait for an earlier message of their key: an order.Keeper.
type Order interface {
	SetAside(ctx context.Context, k *durable.Consumer, cs []Candidate, leases []redisq.Lease)
}

// A Settler ends the leases of claimed jobs that nobody gets, for push and pull.
type Settler struct {
	Verifier *Verifier
	Queue    Leases
	Order    Order // of ordered consumers; may be nil where there are none
	Metrics  *metrics.Metrics
}

// Settle ends the leases whose candidates have a verdict other than Deliver: it stores the deaths of
// the expired ones with store, leaves the ones to set aside to Order, and acknowledges those that are
// over, of which it returns the number. cs[i] is the candidate of leases[i]. After an error the
// caller gives the leases back, or they end by themselves.
func (s Settler) Settle(ctx context.Context, k *durable.Consumer, cs []Candidate, leases []redisq.Lease,
	store func(outcome.Entry) error) (ended int, err error) {
	var over []redisq.Lease
	aside := false
	for i := range cs {
		switch c, lease := &cs[i], &leases[i]; {
		case c.Verdict.SetAside():
			aside = true
		case c.Verdict.Ends():
			over = append(over, *lease)
		case c.Verdict == Expired:
			if err := store(outcome.Entry{Outcome: c.Death(k, lease, s.Verifier.NowMs()), Lease: *lease}); err != nil {
				return 0, err
			}
			s.Expired(c.ID)
		}
	}
	if aside {
		s.Order.SetAside(ctx, k, cs, leases)
	}
	if len(over) > 0 {
		_, err = s.Queue.AckLeases(ctx, k.No, over)
	}
	return len(over), err
}

// Expired counts a job that nobody got because it was too old.
func (s Settler) Expired(id ident.ID) {
	s.Metrics.Died(durable.Expired, 1)
	s.Verifier.Cache.Done(id)
}

// GiveBack releases leases of jobs that nobody got. No attempt is charged, and the jobs return to their
// places in the queue. After an error the leases end by themselves.
func (s Settler) GiveBack(consumer uint32, leases []redisq.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Metrics.Released.Add(float64(len(leases)))
	return guard.Do("release of leases", func() error {
		_, err := s.Queue.Release(ctx, consumer, leases)
		return err
	})
}
