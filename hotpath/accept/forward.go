package accept

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// forwardPatience is how long a forwarded message waits for admission.
const forwardPatience = time.Second

// Forward publishes a message that the broker itself makes, without HTTP. Its error is that
// of a Submission.
func (p *Publisher) Forward(ctx context.Context, m *durable.Message) error {
	sub := p.Submit(ctx, Terms{Patience: forwardPatience, Lines: true}, m)
	sub.Wait()
	err := sub.Outcome(0)
	sub.Release()
	return err
}
