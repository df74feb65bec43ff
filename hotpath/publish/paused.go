package publish

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// takes refuses a message for a channel that the copy of the catalogue shows as paused, itself or with its
// group, unless another broker has resumed it.
func (p *Publisher) takes(ctx context.Context, ch *catalogue.Channel) error {
	if !ch.Closed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	if err := p.catalogue.Refresh(ctx); err != nil {
		return err
	}
	if now := p.catalogue.ChannelByNo(ch.No); now != nil && !now.Deleted {
		return now.Refusal()
	}
	return nil
}
