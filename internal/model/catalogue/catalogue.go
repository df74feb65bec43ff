// Package catalogue is a broker's copy of all producers, channels, groups and consumers. The hot
// path reads the copy and sends no query for them.
//
// A change of a resource reaches every catalogue within the poll interval, and usually at
// once by a hint. The catalogue refreshes its copy from the store before it refuses a
// request (unknown ID, wrong token). Every broker therefore knows a resource as soon as
// one broker has answered 201 for it. The audience of a message does not depend on the
// copy: the insert of the message verifies it (durable.Store.Insert).
package catalogue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A Source is the part of durable.Store that the catalogue reads.
type Source interface {
	Changes(ctx context.Context, after int64) (durable.Changes, error)
	Extent(ctx context.Context) (durable.Extent, error)
	Touch(ctx context.Context, used durable.Numbers) error
}

// PollInterval is the largest age of a copy when every hint is lost.
const PollInterval = time.Second

// A Catalogue is safe for concurrent use.
type Catalogue struct {
	source Source
	log    *slog.Logger

	mu         sync.RWMutex // guards everything below
	version    int64
	producers  map[string]*durable.Producer
	byProducer map[uint32]*durable.Producer
	channels   map[string]*Channel
	byChannel  map[uint32]*Channel
	groups     map[string]*Group
	byGroup    map[uint32]int64 // number -> version, of deleted groups too
	consumers  map[consumerKey]*durable.Consumer
	byConsumer map[uint32]*durable.Consumer
	replays    map[uint32]*durable.Consumer // consumer -> consumer of its replay, nil before the first one
	replaying  atomic.Bool                  // there are some
	order      orders
	watchers   []func(*durable.Consumer)
	deleted    deletions
	filtering  map[uint32]bool                               // channels with filters
	filters    atomic.Bool                                   // there are such channels
	wanted     atomic.Pointer[map[uint32]durable.StatusKind] // replaced with mu held
	bounds     atomic.Pointer[map[uint32]Bounds]             // replaced with mu held
	// consumers that went with a restored backup: the store has no row of them
	lost map[uint32]bool
	restoration
	grants   atomic.Pointer[map[string]*Grant] // API tokens by their IDs, replaced with mu held
	secrets  Secrets                           // set before the first request
	revision atomic.Uint64                     // grows with each change of the copy, with mu held
	watched  watchlist                         // requests that wait for a change

	refreshing chan struct{} // capacity 1, full during a refresh: one at a time; taken before mu
	started    uint64        // refreshes begun, guarded by mu
	finished   uint64        // the newest begun refresh that succeeded, guarded by mu
	hint       chan struct{}
}

type consumerKey struct {
	channel uint32
	id      string
}

// New returns an empty catalogue; Refresh or Run fills it.
func New(source Source, log *slog.Logger) *Catalogue {
	c := &Catalogue{source: source, log: log, hint: make(chan struct{}, 1), refreshing: make(chan struct{}, 1)}
	c.empty()
	return c
}

// empty removes everything from the copy, with mu held.
func (c *Catalogue) empty() {
	c.producers, c.byProducer = map[string]*durable.Producer{}, map[uint32]*durable.Producer{}
	c.channels, c.byChannel = map[string]*Channel{}, map[uint32]*Channel{}
	c.groups, c.byGroup = map[string]*Group{}, map[uint32]int64{}
	c.consumers, c.byConsumer = map[consumerKey]*durable.Consumer{}, map[uint32]*durable.Consumer{}
	c.filtering, c.lost, c.replays = map[uint32]bool{}, map[uint32]bool{}, nil
	c.order, c.deleted = orders{consumers: map[uint32][]string{}}, deletions{}
	c.filters.Store(false)
	c.replaying.Store(false)
	c.wanted.Store(nil)
	c.bounds.Store(nil)
	c.grants.Store(nil)
	c.version = 0
}

// Watch calls f for all consumers in the copy, in the order of their numbers, and from then on for each
// consumer that is new or changed. A consumer comes before its replays. f must not call Watch or
// Refresh.
func (c *Catalogue) Watch(f func(*durable.Consumer)) {
	c.mu.Lock()
	c.watchers = append(c.watchers, f)
	known := make([]*durable.Consumer, 0, len(c.byConsumer))
	for _, k := range c.byConsumer {
		known = append(known, k)
	}
	c.mu.Unlock()
	slices.SortFunc(known, func(a, b *durable.Consumer) int { return cmp.Compare(a.No, b.No) })
	for _, k := range known {
		f(k)
	}
}

// Run keeps the copy fresh until ctx ends, and returns nil then.
func (c *Catalogue) Run(ctx context.Context) error {
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	failing := false
	for {
		polled := false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			polled = true
		case <-c.hint:
		}
		err := c.Refresh(ctx)
		if err == nil && polled {
			err = c.audit(ctx)
		}
		if err != nil && ctx.Err() == nil && !failing {
			c.log.Warn("the catalogue cannot be refreshed; the broker uses the last copy", "error", err)
		}
		failing = err != nil
	}
}

// Hint makes Run refresh the copy now, because another broker changed a resource.
func (c *Catalogue) Hint() {
	select {
	case c.hint <- struct{}{}:
	default:
	}
}

// Refresh returns once the copy shows everything that was committed before the
// call. Concurrent calls share one query: a refresh that began after the call serves the
// call, and a refresh that was under way before does not.
func (c *Catalogue) Refresh(ctx context.Context) error {
	c.mu.RLock()
	need := c.started + 1
	c.mu.RUnlock()

	if err := c.begin(ctx); err != nil {
		return err
	}
	defer func() { <-c.refreshing }()
	c.mu.Lock()
	if c.finished >= need {
		c.mu.Unlock()
		return nil
	}
	c.started++
	this, after := c.started, c.version
	c.mu.Unlock()
	return c.load(ctx, this, after)
}

// begin takes the right to refresh, which the caller gives back. It is a channel and not a mutex: a
// call with a deadline must not wait for a refresh that has none.
func (c *Catalogue) begin(ctx context.Context) error {
	select {
	case c.refreshing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("catalogue: refresh: %w", ctx.Err())
	}
}

// load puts what was written after a version into the copy.
func (c *Catalogue) load(ctx context.Context, refresh uint64, after int64) error {
	changes, err := c.source.Changes(ctx, after)
	if err != nil {
		return fmt.Errorf("catalogue: refresh: %w", err)
	}
	if changes.Version < after { // a read may have been stale: the next polls decide
		c.suspect(changes.Version, refresh)
		return nil
	}
	c.apply(changes, refresh, false)
	return nil
}

func (c *Catalogue) apply(changes durable.Changes, refresh uint64, all bool) {
	news, watchers := c.take(changes, refresh, all)
	for _, k := range news {
		for _, f := range watchers {
			f(k)
		}
	}
}

// take puts changes into the copy, or replaces the copy by them. A panic releases its lock, and the
// next refresh takes the changes again.
func (c *Catalogue) take(changes durable.Changes, refresh uint64, all bool) (news []*durable.Consumer,
	watchers []func(*durable.Consumer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.byConsumer
	if all {
		c.empty()
	}
	for _, p := range changes.Producers {
		c.takeProducer(&p)
	}
	c.takeGroups(changes.Groups)
	touched := map[uint32]*Channel{}
	for _, ch := range changes.Channels {
		next := &Channel{Channel: ch, Intake: policy.IntakeOf(ch.Intake)}
		if old := c.byChannel[ch.No]; old != nil {
			next.Consumers = append([]*durable.Consumer(nil), old.Consumers...)
		} else {
			c.order.channels = nil
		}
		touched[ch.No] = next
	}
	for _, k := range changes.Consumers {
		ch := touched[k.ChannelNo]
		if ch == nil {
			old := c.byChannel[k.ChannelNo]
			if old == nil {
				continue // its channel is older than the copy: impossible in one snapshot
			}
			ch = &Channel{Channel: old.Channel, Intake: old.Intake, Consumers: append([]*durable.Consumer(nil),
				old.Consumers...)}
			touched[k.ChannelNo] = ch
		}
		for len(ch.Consumers) <= k.Position {
			ch.Consumers = append(ch.Consumers, nil)
		}
		ch.Consumers[k.Position] = &k
		c.takeConsumer(&k)
		news = append(news, &k)
		if g := c.replays[k.No]; g != nil { // it goes with its consumer
			news = append(news, c.takeReplay(g.Replay))
		}
	}
	for _, r := range changes.Replays {
		if g := c.takeReplay(&r); g != nil {
			news = append(news, g)
		}
	}
	for _, ch := range touched {
		c.takeChannel(ch)
	}
	if all {
		news = append(news, c.lose(before)...)
	}
	c.note(changes)
	c.takeTokens(changes)
	c.revise(changes, all)
	c.version, c.lower, c.finished = changes.Version, 0, refresh
	return news, c.watchers
}

// Producer returns the producer with that ID, nil when the copy has none.
func (c *Catalogue) Producer(id string) *durable.Producer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.producers[id]
}

// ProducerByNo returns the producer with that internal number, which may be deleted, or nil.
func (c *Catalogue) ProducerByNo(no uint32) *durable.Producer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byProducer[no]
}

// Channel returns the channel with that ID, nil when the copy has none.
func (c *Catalogue) Channel(id string) *Channel {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.channels[id]
}

// ChannelByNo returns the channel with that internal number, which may be deleted, or nil.
func (c *Catalogue) ChannelByNo(no uint32) *Channel {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byChannel[no]
}

// Consumer returns a consumer of a channel, nil when the copy has none.
func (c *Catalogue) Consumer(channelID, id string) *durable.Consumer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ch := c.channels[channelID]
	if ch == nil {
		return nil
	}
	return c.consumers[consumerKey{ch.No, id}]
}

// ConsumerByNo returns the consumer with that internal number, which may be deleted or that of a
// replay, or nil.
func (c *Catalogue) ConsumerByNo(no uint32) *durable.Consumer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byConsumer[no]
}

// QueueNos returns the numbers of everything that has a queue: consumers that are not deleted, and
// replays that have not ended.
func (c *Catalogue) QueueNos() []uint32 {
	nos := c.ConsumerNos()
	for _, g := range c.Replays() {
		nos = append(nos, g.No)
	}
	return nos
}

// ConsumerNos returns the internal numbers of all consumers that are not deleted, in no order.
func (c *Catalogue) ConsumerNos() []uint32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	nos := make([]uint32, 0, len(c.consumers))
	for _, k := range c.consumers {
		nos = append(nos, k.No)
	}
	return nos
}
