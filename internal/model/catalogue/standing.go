package catalogue

import (
	"context"
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Standing is what a request was admitted with: its channel, and the consumer or the producer as
// which it acts. A request that lives long (a claim that waits, a batch, a body that comes slowly)
// asks Check at each step that takes or gives something, and goes on with the records that Standing
// then has. One goroutine at a time uses a Standing. The zero value and nil stand for nothing, and Check
// refuses nothing.
type Standing struct {
	catalogue *Catalogue
	ctx       context.Context // of the whole request, see package request
	at        uint64          // revision of the copy that was checked last
	Channel   *Channel
	Consumer  *durable.Consumer // nil: the request does not act as a consumer
	Producer  *durable.Producer // nil: nor as a producer

	byChannel, byOwner proof // of the tokens that it was admitted with

	keyed bool                            // it was admitted without the tokens of the records
	still func(ctx context.Context) error // what else must hold; nil: nothing
}

// AdmitProducer is AuthorizeProducer for a request that may live long.
func (c *Catalogue) AdmitProducer(ctx context.Context, channelID string, channelToken, producerID,
	producerToken []byte) (Standing, error) {
	at := c.revision.Load() // before the tokens are compared
	s, err := c.authorizeProducer(ctx, channelID, channelToken, producerID, producerToken)
	s.catalogue, s.ctx, s.at = c, ctx, at
	return s, err
}

// AdmitConsumer is AuthorizeConsumer for a request that may live long.
func (c *Catalogue) AdmitConsumer(ctx context.Context, channelID string, channelToken []byte, consumerID string,
	consumerToken []byte) (Standing, error) {
	at := c.revision.Load()
	s, err := c.authorizeConsumer(ctx, channelID, channelToken, consumerID, consumerToken)
	s.catalogue, s.ctx, s.at = c, ctx, at
	return s, err
}

// StandingIn returns the standing of a request of management in a channel: only the end of the channel
// ends it.
func (c *Catalogue) StandingIn(ctx context.Context, ch *Channel) Standing {
	return Standing{catalogue: c, ctx: ctx, Channel: ch}
}

// Revision is a number that grows with each change of the copy.
func (c *Catalogue) Revision() uint64 { return c.revision.Load() }

// StandingOf returns the standing of a request that acts as a consumer or a producer of a channel without
// their tokens: by a key of its own, or because management is open. Other tokens do not end it. still, which
// may be nil, says whether the request would be admitted now; it is asked when the copy has changed.
func (c *Catalogue) StandingOf(ctx context.Context, ch *Channel, k *durable.Consumer, p *durable.Producer,
	still func(ctx context.Context) error) Standing {
	return Standing{catalogue: c, ctx: ctx, Channel: ch, Consumer: k, Producer: p, keyed: true, still: still}
}

// In returns the standing with another context of its request.
func (s Standing) In(ctx context.Context) Standing {
	s.ctx = ctx
	return s
}

// Check returns nil while a new request with the same tokens would be admitted, and else the error
// with which it would be refused. It costs one load while the copy has not changed and no token ends.
func (s *Standing) Check() error {
	if s == nil || s.catalogue == nil || s.at == s.catalogue.revision.Load() && !s.ended() {
		return nil
	}
	before := s.at
	refusal := s.compare()
	if refusal != nil {
		// As for a new request: the copy may be behind another broker.
		if err := s.catalogue.refreshFor(s.ctx); err != nil {
			return err
		}
		refusal = s.compare()
	}
	if refusal == nil && s.still != nil {
		if refusal = s.still(s.ctx); refusal != nil {
			s.at = before // it is asked again
		}
	}
	return refusal
}

// ended reports whether a token that has an end is over.
func (s *Standing) ended() bool {
	until := min(s.byChannel.end(), s.byOwner.end())
	return until != never && s.catalogue.now() >= until
}

// compare compares what the request was admitted with with the present copy. It keeps no token that was sent, but
// what the token was equal to.
func (s *Standing) compare() error {
	c := s.catalogue
	c.mu.RLock()
	defer c.mu.RUnlock()
	at := c.revision.Load() // changes only with mu held
	ch := c.channels[s.Channel.ID]
	switch acts := s.Consumer != nil || s.Producer != nil; {
	case ch == nil || ch.No != s.Channel.No:
		return ErrUnknownChannel
	case acts && !s.keyed && !c.stillChannel(s.byChannel, ch, s.consumerID()):
		return ErrChannelToken
	case s.Producer != nil && ident.Reserved(ch.ID):
		return ErrSystemChannel
	}
	k, p := s.Consumer, s.Producer
	if k != nil {
		k = c.consumers[consumerKey{ch.No, s.Consumer.ID}]
		switch {
		case k == nil || k.No != s.Consumer.No:
			return ErrUnknownConsumer
		case !s.keyed && !c.stillConsumer(s.byOwner, ch, k):
			return ErrConsumerToken
		}
	}
	if p != nil {
		p = c.producers[s.Producer.ID]
		switch {
		case p == nil || p.No != s.Producer.No:
			return ErrUnknownProducer
		case !s.keyed && !c.still(s.byOwner, p.Token, &p.Former):
			return ErrProducerToken
		}
	}
	s.at, s.Channel, s.Consumer, s.Producer = at, ch, k, p
	return nil
}

// consumerID is that of the consumer as which the request acts; "": none.
func (s *Standing) consumerID() string {
	if s.Consumer == nil {
		return ""
	}
	return s.Consumer.ID
}

// Await returns a channel that gets a value when the copy takes a change of what the standing is
// made of. stop ends that. A change before the call is missed: the caller asks Check after it.
func (s *Standing) Await() (changed <-chan struct{}, stop func()) {
	if s == nil || s.catalogue == nil {
		return nil, func() {}
	}
	w := &watcher{changed: make(chan struct{}, 1)}
	w.subjects = append(w.subjects, subject{channelSubject, s.Channel.No})
	if s.Consumer != nil {
		w.subjects = append(w.subjects, subject{consumerSubject, s.Consumer.No})
	}
	if s.Producer != nil {
		w.subjects = append(w.subjects, subject{producerSubject, s.Producer.No})
	}
	watched := &s.catalogue.watched
	watched.add(w)
	return w.changed, func() { watched.remove(w) }
}

// A subject is a record that requests wait for a change of.
type subject struct {
	kind subjectKind
	no   uint32
}

type subjectKind uint8

const (
	channelSubject subjectKind = iota
	consumerSubject
	producerSubject
)

// A watcher is one request that waits.
type watcher struct {
	changed  chan struct{} // capacity 1
	subjects []subject
}

// A watchlist has the requests that wait, by what they depend on: a change wakes those that it
// concerns, and no other ones. It has a lock of its own, which is taken after Catalogue.mu.
type watchlist struct {
	mu sync.Mutex
	by map[subject]map[*watcher]struct{}
}

func (l *watchlist) add(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[subject]map[*watcher]struct{}{}
	}
	for _, of := range w.subjects {
		if l.by[of] == nil {
			l.by[of] = map[*watcher]struct{}{}
		}
		l.by[of][w] = struct{}{}
	}
}

func (l *watchlist) remove(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range w.subjects {
		if delete(l.by[of], w); len(l.by[of]) == 0 {
			delete(l.by, of)
		}
	}
}

// tell wakes the requests that the changes concern; with all, every one.
func (l *watchlist) tell(changes durable.Changes, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.by) == 0:
		return
	case all:
		for of := range l.by {
			l.wake(of)
		}
		return
	}
	for i := range changes.Channels {
		l.wake(subject{channelSubject, changes.Channels[i].No})
	}
	for i := range changes.Consumers {
		l.wake(subject{consumerSubject, changes.Consumers[i].No})
	}
	for i := range changes.Producers {
		l.wake(subject{producerSubject, changes.Producers[i].No})
	}
}

func (l *watchlist) wake(of subject) {
	for w := range l.by[of] {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// revise notes that the copy has changed, with mu held, and wakes the requests that it concerns. No
// standing depends on a replay, and replays come with every refresh.
func (c *Catalogue) revise(changes durable.Changes, all bool) {
	rows := len(changes.Producers) + len(changes.Channels) + len(changes.Groups) + len(changes.Consumers)
	if !all && !changes.NewTokens && rows == 0 {
		return
	}
	c.revision.Add(1)
	c.watched.tell(changes, all || changes.NewTokens) // any of those that wait may stand on an API token
}
