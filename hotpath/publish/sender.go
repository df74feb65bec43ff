package publish

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A sender is an authorised producer and its channel.
type sender struct {
	ch       *catalogue.Channel
	producer *durable.Producer
	standing catalogue.Standing // zero: of no request
}

// key is whose share a request of the sender uses.
func (s *sender) key() share.Key { return share.Producer(s.producer.No) }

// check returns nil while a new request would be admitted, and moves on to the records that count
// now. It costs one load while the catalogue has not changed.
func (s *sender) check() error {
	if err := s.standing.Check(); err != nil {
		return err
	}
	if s.standing.Producer != nil {
		s.ch, s.producer = s.standing.Channel, s.standing.Producer
	}
	return nil
}

// sender authorises the request of a producer.
func (p *Publisher) sender(ctx context.Context, rc *fasthttp.RequestCtx, channelID string) (sender, error) {
	h := &rc.Request.Header
	channelToken, token, err := credentials.Both(h, credentials.Producer)
	if err != nil {
		return sender{}, err
	}
	st, err := p.catalogue.AdmitProducer(ctx, channelID, channelToken, h.Peek("X-Broker-Producer-ID"),
		token)
	return sender{st.Channel, st.Producer, st}, err
}

// Sender authorises the producer of a bulk, by the tokens of a broadcast.
func (p *Publisher) Sender(rc *fasthttp.RequestCtx) (st catalogue.Standing, err error) {
	channelID, _ := rc.UserValue("channel").(string)
	ctx := request.Of(rc)
	from, err := p.sender(ctx, rc, channelID)
	if err == nil {
		err = p.takesRows(ctx, &from.standing)
	}
	return from.standing, err
}

// Still returns nil while the producer of a bulk may go on sending it.
func (p *Publisher) Still(ctx context.Context, st *catalogue.Standing) error {
	ch, producer := st.Channel, st.Producer
	if err := st.Check(); err != nil || st.Channel == ch && st.Producer == producer {
		return err
	}
	return p.takesRows(ctx, st)
}

func (p *Publisher) takesRows(ctx context.Context, st *catalogue.Standing) error {
	if err := p.takes(ctx, st.Channel); err != nil {
		return err
	}
	if st.Producer.PublishSecret != "" {
		return errUnsignedByLine
	}
	return nil
}
