package accept

import (
	"context"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// consumersHeader names the consumers that a message is addressed to, separated by commas. In a
// batch it applies to each line without Consumers of its own.
const consumersHeader = "X-Broker-Consumers"

// RecipientsHeader is 0 in the answer to a message that is stored and has no job: the channel has no
// consumer, or their filters leave it out. Other answers lack it.
const RecipientsHeader = "X-Broker-Recipients"

// reachesNobody reports whether a stored message has no job. Usually the first consumer has one. The
// copy of the channel may be older than the one by which the message was judged.
func (p *Publisher) reachesNobody(ch *catalogue.Channel, msg *durable.Message) bool {
	h := msg.Head()
	concerned := func(k *durable.Consumer) bool { return k != nil && k.Concerns(h) }
	if slices.ContainsFunc(ch.Consumers, concerned) {
		return false
	}
	now := p.catalogue.ChannelByNo(ch.No)
	return now == nil || !slices.ContainsFunc(now.Consumers, concerned)
}

// mostNames bounds the names in one list of consumers: each takes memory besides its text.
const mostNames = 16 << 10

var errManyConsumers = problem.Newf(400, "invalid_consumers", "A message names at most %d consumers; nothing was "+
	"stored.", mostNames)

var errNoConsumers = problem.New(400, "invalid_consumers", consumersHeader+
	" must name at least one consumer of the channel: IDs, separated by commas; nothing was stored.")

var errLineConsumers = problem.New(400, "invalid_consumers", "Consumers must be a JSON array with IDs of consumers.")

// errNoConsumer refuses a name.
func errNoConsumer(name string) error {
	if !ident.ValidName(name) {
		return problem.Newf(400, "unknown_consumer", "The message is addressed to %q, which is no ID of a consumer; "+
			"nothing was stored.", name[:min(len(name), longestQuote)])
	}
	return problem.Newf(400, "unknown_consumer", "The message is addressed to %s, which is no consumer of the channel; "+
		"nothing was stored.", name)
}

func (d *Draft) setConsumers(text []byte) error {
	if d.consumers == nil {
		d.consumers = []string{}
	}
	d.consumers = namesIn(d.consumers, string(text))
	return nil
}

func (d *Draft) readConsumersHeader(h *fasthttp.RequestHeader) error {
	if h.Peek(consumersHeader) == nil {
		return nil
	}
	for _, value := range h.PeekAll(consumersHeader) {
		if err := d.setConsumers(value); err != nil {
			return err
		}
	}
	return nil
}

// readConsumers reads a list of IDs.
func (d *Draft) readConsumers() error {
	r := &d.in
	d.consumers = []string{}
	if !r.Take('[') {
		return errLineConsumers
	}
	if r.Space(); r.Take(']') {
		return nil
	}
	for {
		if r.Space(); r.At == len(r.Text) || r.Text[r.At] != '"' {
			return errLineConsumers
		}
		name, err := r.word()
		if err != nil {
			return err
		}
		if d.consumers = append(d.consumers, string(name)); len(d.consumers) > mostNames {
			return errManyConsumers
		}
		if r.Space(); r.Take(']') {
			return nil
		}
		if !r.Take(',') {
			return errLineConsumers
		}
	}
}

// namesIn appends the names of a list with commas.
func namesIn(names []string, list string) []string {
	for name := range strings.SplitSeq(list, ",") {
		if len(names) > mostNames { // refused
			return names
		}
		if name = strings.Trim(name, " \t"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// addressed returns the positions of named consumers of a channel. A name that the copy of the
// catalogue lacks is refused only after a refresh.
func (p *Publisher) addressed(ch *catalogue.Channel, names []string) (durable.Positions, error) {
	switch {
	case len(names) == 0:
		return "", errNoConsumers
	case len(names) > mostNames:
		return "", errManyConsumers
	}
	var set durable.PositionSet
	refreshed := false
	for _, name := range names {
		k := p.catalogue.Consumer(ch.ID, name)
		if k == nil && !refreshed && ident.ValidName(name) {
			ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
			err := p.catalogue.Refresh(ctx)
			cancel()
			if err != nil {
				return "", err
			}
			refreshed = true
			k = p.catalogue.Consumer(ch.ID, name)
		}
		if k == nil || k.ChannelNo != ch.No {
			return "", errNoConsumer(name)
		}
		set.Add(k.Position)
	}
	return set.Positions(), nil
}

// addressable reports whether none of the positions is that of a deleted consumer.
func addressable(ch *catalogue.Channel, to durable.Positions) bool {
	return !slices.ContainsFunc(ch.Consumers, func(k *durable.Consumer) bool {
		return k != nil && k.Deleted() && to.Has(k.Position)
	})
}

// readdress addresses a message to the consumers that have the IDs now of those that were deleted
// since. A message of a schedule, which was accepted long ago, leaves out IDs that nobody has; any
// other message is refused. The channel of the message may have been deleted, too: old is that one,
// otherwise it is ch.
func (c *committer) readdress(old, ch *catalogue.Channel, m *durable.Message) error {
	if old == ch && addressable(ch, m.Addressed) {
		return nil
	}
	var set durable.PositionSet
	for _, k := range old.Consumers {
		if k == nil || !m.Addressed.Has(k.Position) {
			continue
		}
		if k.Deleted() {
			id := k.ID
			if k = c.catalogue.Consumer(ch.ID, id); k == nil {
				if m.Occurrence != nil {
					continue
				}
				return errNoConsumer(id)
			}
		}
		set.Add(k.Position)
	}
	if m.Addressed = set.Positions(); m.Addressed == "" {
		m.Addressed = durable.NoPositions
	}
	m.Audience = 0 // not judged
	return nil
}

// stillThere returns those of the positions that are not of deleted consumers.
func stillThere(ch *catalogue.Channel, to durable.Positions) durable.Positions {
	if addressable(ch, to) {
		return to
	}
	var set durable.PositionSet
	for _, k := range ch.Consumers {
		if k != nil && !k.Deleted() && to.Has(k.Position) {
			set.Add(k.Position)
		}
	}
	if left := set.Positions(); left != "" {
		return left
	}
	return durable.NoPositions
}
