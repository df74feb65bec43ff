package pull

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// errHeld refuses to lease a job of a consumer that is not active.
var errHeld = &problem.Problem{Status: 429, Code: "consumer_held", RetryAfter: 5,
	Detail: "The consumer is paused, dead or gone; its jobs are held. Nothing was leased."}

// held reports whether the jobs of the consumer are held, by this broker's copy of the catalogue.
func (p *Puller) held(consumer uint32) bool {
	k := p.catalogue.ConsumerByNo(consumer)
	return k != nil && k.Held()
}

// deleted reports whether the consumer was deleted since its request was authorised.
func (p *Puller) deleted(consumer uint32) bool {
	k := p.catalogue.ConsumerByNo(consumer)
	return k != nil && k.Deleted()
}

// inFlightHeld answers a request for INFLIGHT while the jobs are held: only the same state is
// allowed.
func (m *move) inFlightHeld(ctx context.Context) error {
	if m.p.deleted(m.k.No) {
		return catalogue.ErrUnknownConsumer
	}
	standing, err := m.p.probes.Ask(ctx, m.k.No, m.id)
	switch {
	case err != nil:
		return err
	case standing.State != redisq.Leased:
		return errHeld
	case m.e.IncrementalTimeout != 0:
		return errTimeout
	}
	return nil
}
