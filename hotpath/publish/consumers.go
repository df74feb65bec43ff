package publish

import (
	"context"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
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
// copy of the channel may be older than the one by which the message was checked.
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
func (p *Publisher) addressed(ctx context.Context, ch *catalogue.Channel, names []string) (durable.Positions, error) {
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
			within, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
			err := p.catalogue.Refresh(within)
			cancel()
			if err != nil {
				return "", err
			}
			refreshed = true
			k = p.catalogue.Consumer(ch.ID, name)
		}
		if k == nil || k.ChannelNo != ch.No {
			return "", accept.NoConsumer(name)
		}
		set.Add(k.Position)
	}
	return set.Positions(), nil
}
