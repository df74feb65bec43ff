package simulation

import (
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
)

// A flaw switches off one protection of the world, to prove that the checker notices. It affects
// only some jobs, as real faults do.
type flaw int

const (
	noFlaw                  flaw = iota
	commitIsForgotten            // the store acknowledges a message that it has not stored
	guardIsOff                   // the insert accepts any audience, node lease and age of an ID
	keysAreForgotten             // the store ignores the producers' message IDs
	recordIsForgotten            // the store acknowledges an outcome that it has not recorded
	statesAreHidden              // the store returns no state of a job
	payloadsAreMixed             // the store returns the payload of another message
	marksRunAhead                // a settled watermark is stored too far ahead
	leaseIsForgotten             // Redis ends leases before their deadline
	offerIsForgotten             // Redis reports jobs as known that it does not have
	wipeIsHidden                 // a wiped Redis keeps its epochs
	runIsIgnored                 // brokers ignore that another Redis process answers
	ackBeforeRecord              // the job is acknowledged in Redis before its outcome is stored
	leasesAreNotHeld             // Redis reports leases as restored that it does not have
	clockIsTrusted               // Redis ignores that its clock went back
	openIsPurged                 // the store removes messages although their jobs are open
	chainIsForgotten             // the store names no message before another one
	ratesAreIgnored              // Redis grants leases beyond the rate
	statesAreStale               // the store tells brokers that every consumer is active
	movesAreForgotten            // the store does not move a schedule on with its message
	timesAreEarly                // the store returns the times of schedules a second early
	changesAreIgnored            // the store stores the message of a schedule as it was before a change
	responsesAreForgotten        // the store acknowledges an outcome and has not stored its response
	repliesAreForgotten          // the store does not end an exchange with the delivery of its reply
	progressRunsAhead            // the store moves the progress of a replay too far
	stepsAreUnguarded            // the store takes steps of a bulk from anybody, at any place
	checkpointIsForgotten        // the store does not move the checkpoint of a bulk with its step
	progressIsUnguarded          // the store moves the progress of a replay from any place
	pastIsForgotten              // Redis begins without the messages of the past that a consumer gets
	flushIsForgotten             // the disk acknowledges a flush that it has not made
	receiptKeysAreForgotten      // the store does not know a message by its receipt
	storeClockGoesBack           // the store's clock is that of its server
	historyIsIgnored             // brokers ignore that the store went back to an earlier state
	journalIsRemoved             // the oldest file of a journal is gone when it is opened
	sharesAreOff                 // a producer gets all that is left of a bound
	roomIsForgotten              // the room of a body that broke off is not free again
	damageIsSilent               // a file of a journal ends where a byte of it is another one
	hangsSpread                  // a consumer is reached when no other one hangs
	hangsAreForgotten            // a request to a consumer that hangs counts as not sent
	purgeIsForgotten             // the store acknowledges a purge that it has not recorded
	redrivesAreForgotten         // the store forgets jobs that a redrive has opened
)

// strikes selects the affected messages.
func (f flaw) strikes(id ident.ID) bool { return id.Millis()%4 == 0 }

// keepEpochs is the effect of wipeIsHidden on a wiped server.
func (r *server) keepEpochs(old map[uint32]*queuemodel.Consumer) {
	for consumer, k := range old {
		r.lane(consumer).Epoch = k.Epoch
	}
}

// ackFirst is the effect of ackBeforeRecord on outcomes on their way to the store.
func (r *server) ackFirst(outcomes []durable.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range outcomes {
		if o.Kind == durable.OutcomeDelivered {
			r.lane(o.ConsumerNo).Ack([]ident.ID{o.ID})
		}
	}
}

// mix is the effect of payloadsAreMixed on messages that are read.
func mix(msgs []durable.Message, all []*durable.Message) {
	for i := range msgs {
		if other := all[(slices.IndexFunc(all, func(m *durable.Message) bool { return m.ID == msgs[i].ID })+
			1)%len(all)]; noFlaw.strikes(msgs[i].ID) {
			msgs[i].Payload = other.Payload
		}
	}
}
