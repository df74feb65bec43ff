package pull

import (
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// awaited returns the exchange of a delivered job whose consumer has responses on, and posts its
// response; nil: there is none.
func (m *move) awaited(out *durable.Outcome) *durable.Exchange {
	p := m.p.policies.Of(m.k.Policy)
	if p.Responses == policy.ResponsesOff || ident.Reserved(m.ch.ID) {
		return nil
	}
	d := exchange.Delivery{Consumer: m.k, Policy: p, ID: m.id, Producer: true, Attempt: out.Attempts, AtMs: out.AtMs}
	return d.Awaited()
}
