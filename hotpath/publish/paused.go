package publish

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// takes refuses a message for a channel that the copy of the catalogue shows as paused, unless another
// broker has resumed the channel.
func (p *Publisher) takes(ctx context.Context, ch *catalogue.Channel) error {
	if !ch.Paused {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	if err := p.catalogue.Refresh(ctx); err != nil {
		return err
	}
	if now := p.catalogue.ChannelByNo(ch.No); now != nil && now.Paused && !now.Deleted {
		return problem.ErrChannelPaused
	}
	return nil
}
