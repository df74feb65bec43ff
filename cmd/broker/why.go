package main

import (
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// newNotebook makes what the attempts of this broker show.
func (b *broker) newNotebook() *why.Notebook {
	n := why.NewNotebook(b.store, func(no uint32) (uint32, bool) {
		account := b.catalogue.Account(no)
		k := b.catalogue.ConsumerByNo(account)
		return account, k != nil && !k.Deleted()
	}, b.log)
	b.catalogue.Watch(func(k *durable.Consumer) {
		if k.Deleted() && k.Replay == nil {
			n.Forget(k.No)
		}
	})
	b.notebook = n
	return n
}

// newExplainer returns what says why nothing moves.
func (b *broker) newExplainer(policies *policy.Book) *why.Explainer {
	b.explainer = why.New(why.Options{
		Store: b.store, Queue: b.queue, Catalogue: b.catalogue, Policies: policies, Notebook: b.notebook,
		Holds: b.plane.Holds, Rates: b.balancer, Contacts: b.presence, Load: b.plane.Load, Writable: b.node.Writable,
		Brokers: func() int { return len(b.node.Peers()) },
		NowMs:   b.node.NowMs, NoWorkerAfter: b.cfg.NoWorkerAfter, RationalDelay: b.cfg.RationalDelay, Log: b.log,
	})
	return b.explainer
}
