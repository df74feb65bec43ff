package accept

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
)

// StoreAccepted stores messages whose producers were told that they are taken, in a transaction of
// their own where the store can, and returns one result each. The deletion of a producer does not take
// such a message back. The caller has admitted them (Admit).
func (s *Submitter) StoreAccepted(ctx context.Context, msgs []*durable.Message) []error {
	writes := make([]*write, len(msgs))
	for i, m := range msgs {
		writes[i] = &write{msg: m, of: &Submission{ctx: ctx}, accepted: true}
	}
	results := s.committer.insertGuarded(ctx, writes)
	s.committer.handOver(writes, results)
	return results
}

// Again inserts messages under the IDs that they have and that were tried before. Nil means that the
// message is stored: an insert with an ID that is too old stores nothing, and finds one that is there.
func (s *Submitter) Again(ctx context.Context, msgs []*durable.Message) ([]error, error) {
	lease, err := s.committer.lease()
	if err != nil {
		return nil, err
	}
	return s.committer.store.Insert(ctx, lease, msgs), nil
}

// Count counts a message that is stored, and that no transaction of the committer has counted.
func (s *Submitter) Count(m *durable.Message) { s.committer.count(m) }
