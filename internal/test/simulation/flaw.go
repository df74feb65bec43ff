package simulation

import (
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
)

// A flaw is one protection of the world that is switched off, to prove that the
// checker would tell. A flaw strikes only some jobs, as real ones do.
type flaw int

const (
	noFlaw            flaw = iota
	commitIsForgotten      // the store says that a message is stored, and it is not
	guardIsOff             // the insert takes any audience, node lease and age of an ID
	keysAreForgotten       // the store does not look at the producers' message IDs
	recordIsForgotten      // the store says that an outcome is recorded, and it is not
	statesAreHidden        // the store knows nothing of a job when it is asked
	payloadsAreMixed       // the store returns the payload of another message
	marksRunAhead          // a settled mark is stored too far ahead
	leaseIsForgotten       // Redis ends leases that live
	offerIsForgotten       // Redis takes jobs for known that it does not have
	wipeIsHidden           // a wiped Redis keeps its epochs
	runIsIgnored           // nobody notices that another Redis process answers
	ackBeforeRecord        // Redis hears of an outcome before the store
	leasesAreNotHeld       // Redis says that it has leases back which it does not have
	clockIsTrusted         // Redis does not see that its clock went back
	openIsPurged           // the store removes messages although their jobs are open
)

// strikes picks some of the messages.
func (f flaw) strikes(id ident.ID) bool { return id.Millis()%4 == 0 }

// keepEpochs is what wipeIsHidden does with a wiped server.
func (r *server) keepEpochs(old map[uint32]*queuemodel.Consumer) {
	for consumer, k := range old {
		r.lane(consumer).Epoch = k.Epoch
	}
}

// ackFirst is what ackBeforeRecord does with outcomes on their way to the store.
func (r *server) ackFirst(outcomes []durable.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range outcomes {
		if o.Kind == durable.OutcomeDelivered {
			r.lane(o.ConsumerNo).Ack([]ident.ID{o.ID})
		}
	}
}

// mix is what payloadsAreMixed does with messages that are read.
func mix(msgs []durable.Message, all []*durable.Message) {
	for i := range msgs {
		if other := all[(slices.IndexFunc(all, func(m *durable.Message) bool { return m.ID == msgs[i].ID })+1)%len(all)]; noFlaw.strikes(msgs[i].ID) {
			msgs[i].Payload = other.Payload
		}
	}
}

// ahead is what marksRunAhead does with marks.
func ahead(marks map[uint32]ident.ID) map[uint32]ident.ID {
	out := maps.Clone(marks)
	for consumer, id := range out {
		out[consumer] = ident.AtMillis(id.Millis() + 5000)
	}
	return out
}
