package accept

import (
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// destination returns the channel of a message, or the reason why the message may not be stored, by the
// copy of the catalogue. The message was authorised from an earlier copy. Where its channel or producer
// was deleted since, and there is another one with the same ID and token, the message is for that one.
// One that was accepted before stays that of its producer. The insert of a message checks this again: a
// broker with an old copy stores none.
func (c *committer) destination(m *durable.Message, accepted bool) (*catalogue.Channel, error) {
	ch := c.catalogue.ChannelByNo(m.ChannelNo)
	if ch == nil { // it is not in the backup that was restored meanwhile
		return nil, catalogue.ErrUnknownChannel
	}
	if !ch.Closed() && (m.Addressed == "" || !ch.Deletions()) && (accepted || !c.catalogue.DeletedProducers()) {
		return ch, nil // the usual case; a deleted channel is paused as well
	}
	old := ch
	if ch.Deleted {
		if m.Occurrence != nil { // the deletion ended the schedules of the channel
			return nil, catalogue.ErrUnknownChannel
		}
		now := c.catalogue.Channel(ch.ID)
		if now == nil || !atrest.Same(now.Token, ch.Token) {
			return nil, catalogue.ErrUnknownChannel
		}
		m.ChannelNo, ch = now.No, now
		m.Audience = 0 // not filtered
	}
	if m.Addressed != "" {
		if err := c.readdress(old, ch, m); err != nil {
			return nil, err
		}
	}
	if p := c.catalogue.ProducerByNo(m.ProducerNo); p != nil && p.Deleted && !accepted {
		if m.Occurrence != nil { // the deletion ended the schedules of the producer
			return nil, catalogue.ErrUnknownProducer
		}
		now := c.catalogue.Producer(p.ID)
		if now == nil || !atrest.Same(now.Token, p.Token) || now.PublishSecret != "" {
			return nil, catalogue.ErrUnknownProducer
		}
		m.ProducerNo = now.No
	}
	if err := ch.Refusal(); err != nil {
		return nil, err
	}
	return ch, nil
}
