package accept

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

const (
	// forwardPatience is how long a forwarded message waits for admission.
	forwardPatience = time.Second
	// forwarded is the number of messages that are submitted together.
	forwarded = 128
)

// Forward publishes a message that the broker itself makes, without HTTP. Its error is that
// of a Submission.
func (s *Submitter) Forward(ctx context.Context, m *durable.Message) error {
	return s.forward(ctx, forwardPatience, m)[0]
}

// ForwardAll is Forward for messages that wait as lines of a batch do. It returns one result each.
func (s *Submitter) ForwardAll(ctx context.Context, msgs []*durable.Message) []error {
	return s.forward(ctx, LinePatience, msgs...)
}

func (s *Submitter) forward(ctx context.Context, patience time.Duration, msgs ...*durable.Message) []error {
	results := make([]error, 0, len(msgs))
	var subs []*Submission
	// In small parts, since a part waits for places that publishes of clients could have.
	for part := range slices.Chunk(msgs, forwarded) {
		subs = append(subs, s.Submit(ctx, Terms{Patience: patience, Lines: true}, part...))
	}
	for _, sub := range subs {
		sub.Wait()
		for i := range sub.writes {
			results = append(results, sub.Outcome(i))
		}
		sub.Release()
	}
	return results
}
