package catalogue

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The refusals of the data plane, in the order in which they are checked. The
// statuses are those of the older implementation, which clients rely on.
var (
	ErrUnknownChannel = problem.New(404, "channel_not_found", "There is no such channel.")
	ErrSystemChannel  = problem.New(403, "system_channel", "Only the broker itself publishes to this channel.")
	ErrChannelToken   = problem.New(403, "channel_token_mismatch",
		"X-Broker-Channel-Token is missing or does not match. Where it is missing, the token in Authorization: Bearer "+
			"stands for it.").OfToken()
	ErrUnknownProducer = problem.New(401, "producer_not_found", "X-Broker-Producer-ID is missing or names no producer.")
	ErrProducerToken   = problem.New(403, "producer_token_mismatch",
		"X-Broker-Producer-Token, or the token in Authorization: Bearer, is missing or does not match.").OfToken()
	ErrUnknownConsumer = problem.New(401, "consumer_not_found", "The channel has no such consumer.")
	ErrConsumerToken   = problem.New(403, "consumer_token_mismatch",
		"X-Broker-Consumer-Token, or the token in Authorization: Bearer, is missing or does not match.").OfToken()
)

// TokenMatches compares a presented token with the stored one, which may be a digest, in a time that depends on
// neither. An empty stored token matches no token.
func TokenMatches(presented []byte, stored string) bool {
	return atrest.Matches(presented, stored)
}

// refusalWithin bounds how long a refusal may wait for the store.
const refusalWithin = 4 * time.Second

// refreshFor is Refresh with the deadline of one refusal. An accepted request does not
// call it and pays for no deadline.
func (c *Catalogue) refreshFor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refusalWithin)
	defer cancel()
	return c.Refresh(ctx)
}

// AuthorizeProducer returns the channel and the producer when these tokens may publish to
// the channel. The error is one of the Err values above, or the error of a store that did
// not answer.
func (c *Catalogue) AuthorizeProducer(ctx context.Context, channelID string, channelToken, producerID,
	producerToken []byte) (*Channel, *durable.Producer, error) {
	s, err := c.authorizeProducer(ctx, channelID, channelToken, producerID, producerToken)
	return s.Channel, s.Producer, err
}

// authorizeProducer returns the part of a standing that the tokens prove.
func (c *Catalogue) authorizeProducer(ctx context.Context, channelID string, channelToken, producerID,
	producerToken []byte) (Standing, error) {
	s, refusal := c.producer(channelID, channelToken, producerID, producerToken)
	if refusal == nil {
		return s, nil
	}
	// The copy may be behind another broker: refresh it before a refusal.
	if err := c.refreshFor(ctx); err != nil {
		return Standing{}, err
	}
	if s, refusal = c.producer(channelID, channelToken, producerID, producerToken); refusal != nil {
		return Standing{}, refusal
	}
	return s, nil
}

func (c *Catalogue) producer(channelID string, channelToken, producerID, producerToken []byte) (s Standing,
	refusal *problem.Problem) {
	c.mu.RLock()
	ch, p := c.channels[channelID], c.producers[string(producerID)]
	c.mu.RUnlock()
	var byChannel, byOwner proof
	var ok bool
	switch {
	case ch == nil:
		return s, ErrUnknownChannel
	case ident.Reserved(ch.ID):
		return s, ErrSystemChannel
	}
	if byChannel, ok = c.proveChannel(channelToken, ch, ""); !ok {
		return s, ErrChannelToken
	}
	if p == nil {
		return s, ErrUnknownProducer
	}
	if byOwner, ok = c.prove(producerToken, p.Token, &p.Former); !ok {
		return s, ErrProducerToken
	}
	return Standing{Channel: ch, Producer: p, byChannel: byChannel, byOwner: byOwner}, nil
}

// AuthorizeConsumer returns the channel and the consumer when these tokens may act as the
// consumer. Its errors are those of AuthorizeProducer.
func (c *Catalogue) AuthorizeConsumer(ctx context.Context, channelID string, channelToken []byte, consumerID string,
	consumerToken []byte) (*Channel, *durable.Consumer, error) {
	s, err := c.authorizeConsumer(ctx, channelID, channelToken, consumerID, consumerToken)
	return s.Channel, s.Consumer, err
}

// authorizeConsumer returns the part of a standing that the tokens prove.
func (c *Catalogue) authorizeConsumer(ctx context.Context, channelID string, channelToken []byte, consumerID string,
	consumerToken []byte) (Standing, error) {
	s, refusal := c.consumer(channelID, channelToken, consumerID, consumerToken)
	if refusal == nil {
		return s, nil
	}
	if err := c.refreshFor(ctx); err != nil {
		return Standing{}, err
	}
	if s, refusal = c.consumer(channelID, channelToken, consumerID, consumerToken); refusal != nil {
		return Standing{}, refusal
	}
	return s, nil
}

func (c *Catalogue) consumer(channelID string, channelToken []byte, consumerID string,
	consumerToken []byte) (s Standing, refusal *problem.Problem) {
	c.mu.RLock()
	ch := c.channels[channelID]
	var k *durable.Consumer
	if ch != nil {
		k = c.consumers[consumerKey{ch.No, consumerID}]
	}
	c.mu.RUnlock()
	if ch == nil {
		return s, ErrUnknownChannel
	}
	byChannel, ok := c.proveChannel(channelToken, ch, consumerID)
	if !ok {
		return s, ErrChannelToken
	}
	if k == nil {
		return s, ErrUnknownConsumer
	}
	byOwner, ok := c.proveConsumer(consumerToken, ch, k)
	if !ok {
		return s, ErrConsumerToken
	}
	return Standing{Channel: ch, Consumer: k, byChannel: byChannel, byOwner: byOwner}, nil
}
