package accept

import (
	"context"

	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
)

// stillPaused refuses a message for a channel that the copy of the catalogue shows as paused,
// unless another broker has resumed the channel.
func (p *Publisher) stillPaused(channelNo uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	if err := p.catalogue.Refresh(ctx); err != nil {
		return err
	}
	if ch := p.catalogue.ChannelByNo(channelNo); ch != nil && ch.Paused && !ch.Deleted {
		return problem.ErrChannelPaused
	}
	return nil
}
