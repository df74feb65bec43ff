package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// ConsumerCounts are what one broker did for a consumer since it started. A replay counts for its consumer.
type ConsumerCounts struct {
	Accepted   uint64 // jobs of messages that this broker stored, and offered to the queue itself
	Delivered  uint64
	Failed     uint64 // attempts that failed, and after which the job is tried again
	Dead       uint64 // jobs that became dead letters, for any reason
	Lost       uint64 // leases that ended without a word, and after which the job is tried again
	GivenBack  uint64
	LeasesLost uint64    // all leases that ended without a word
	Limited    uint64    // claims that a rate limit held back
	Delivery   Histogram // of push attempts
}

// add adds the counts of another consumer.
func (c *ConsumerCounts) add(o *ConsumerCounts) {
	c.Accepted += o.Accepted
	c.Delivered += o.Delivered
	c.Failed += o.Failed
	c.Dead += o.Dead
	c.Lost += o.Lost
	c.GivenBack += o.GivenBack
	c.LeasesLost += o.LeasesLost
	c.Limited += o.Limited
	c.Delivery.Add(&o.Delivery)
}

// ChannelCounts are what one broker took into a channel since it started.
type ChannelCounts struct {
	Accepted uint64    // messages stored, whoever sent them
	Ack      Histogram // of requests and lines, from their last byte to a success
}

// add adds the counts of another channel.
func (c *ChannelCounts) add(o *ChannelCounts) {
	c.Accepted += o.Accepted
	c.Ack.Add(&o.Ack)
}

// A Snapshot is a copy of all counts of a Book. Gone are the sums of the resources that were deleted, so
// the sum of all never falls.
type Snapshot struct {
	Consumers     map[uint32]ConsumerCounts
	Channels      map[uint32]ChannelCounts
	GoneConsumers ConsumerCounts
	GoneChannels  ChannelCounts
}

// A Book counts what this broker does for each consumer and channel: about 400 bytes for each that had
// traffic. It is told of batches where there are batches, and is safe for concurrent use.
type Book struct {
	account func(no uint32) uint32

	mu        sync.Mutex
	consumers map[uint32]*ConsumerCounts
	channels  map[uint32]*ChannelCounts
	gone      Snapshot // its sums
}

// NewBook returns an empty book. account returns the number that the outcomes of a consumer count for,
// which for a replay is another one; nil: its own.
func NewBook(account func(no uint32) uint32) *Book {
	return &Book{account: account, consumers: map[uint32]*ConsumerCounts{}, channels: map[uint32]*ChannelCounts{}}
}

// consumer returns the counts of a consumer, to be changed with mu held.
func (b *Book) consumer(no uint32) *ConsumerCounts {
	if b.account != nil {
		no = b.account(no)
	}
	c := b.consumers[no]
	if c == nil {
		c = &ConsumerCounts{}
		b.consumers[no] = c
	}
	return c
}

// channel returns the counts of a channel, to be changed with mu held.
func (b *Book) channel(no uint32) *ChannelCounts {
	c := b.channels[no]
	if c == nil {
		c = &ChannelCounts{}
		b.channels[no] = c
	}
	return c
}

// Stored counts messages that are stored.
func (b *Book) Stored(msgs []*durable.Message) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := 0; from < len(msgs); {
		to := from + 1
		for to < len(msgs) && msgs[to].ChannelNo == msgs[from].ChannelNo {
			to++
		}
		b.channel(msgs[from].ChannelNo).Accepted += uint64(to - from)
		from = to
	}
}

// Acked counts n messages of one request that were answered with success after took.
func (b *Book) Acked(channel uint32, took time.Duration, n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.channel(channel).Ack.Observe(took, uint64(n))
}

// Queued counts jobs of messages that this broker has stored.
func (b *Book) Queued(consumer uint32, jobs int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.consumer(consumer).Accepted += uint64(jobs)
}

// Ended counts outcomes that are stored.
func (b *Book) Ended(outcomes []durable.Outcome) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range outcomes {
		o := &outcomes[i]
		c := b.consumer(o.ConsumerNo)
		if o.Phase == durable.PhaseLeaseEnded { // of a job that bears no more of them
			c.LeasesLost++
		}
		switch {
		case o.Kind == durable.OutcomeDelivered:
			c.Delivered++
		case o.Kind == durable.OutcomeDead:
			if !o.Forget {
				c.Dead++
			}
		case o.Kind == durable.OutcomeGivenBack:
			c.GivenBack++
		default:
			c.Failed++
		}
		if o.DurationMs > 0 || o.StatusCode != 0 { // a push attempt
			c.Delivery.Observe(time.Duration(o.DurationMs)*time.Millisecond, 1)
		}
	}
}

// LeasesLost counts leases that ended without a word, and whose jobs are tried again.
func (b *Book) LeasesLost(consumer uint32, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.consumer(consumer)
	c.Lost += uint64(n)
	c.LeasesLost += uint64(n)
}

// Limited counts a claim that a rate limit held back.
func (b *Book) Limited(consumer uint32) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.consumer(consumer).Limited++
}

// Prune moves the counts of the resources that do not exist any more into the sums of those that are gone.
func (b *Book) Prune(isConsumer, isChannel func(no uint32) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for no, c := range b.consumers {
		if !isConsumer(no) {
			b.gone.GoneConsumers.add(c)
			delete(b.consumers, no)
		}
	}
	for no, c := range b.channels {
		if !isChannel(no) {
			b.gone.GoneChannels.add(c)
			delete(b.channels, no)
		}
	}
}

// Consumer returns the counts of a consumer.
func (b *Book) Consumer(no uint32) ConsumerCounts {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.consumers[no]; c != nil {
		return *c
	}
	return ConsumerCounts{}
}

// Snapshot returns a copy of all counts.
func (b *Book) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.gone
	s.Consumers = make(map[uint32]ConsumerCounts, len(b.consumers))
	for no, c := range b.consumers {
		s.Consumers[no] = *c
	}
	s.Channels = make(map[uint32]ChannelCounts, len(b.channels))
	for no, c := range b.channels {
		s.Channels[no] = *c
	}
	return s
}

// Sum returns the counts of all consumers and of all channels.
func (s *Snapshot) Sum() (consumers ConsumerCounts, channels ChannelCounts) {
	consumers, channels = s.GoneConsumers, s.GoneChannels
	for c := range maps.Values(s.Consumers) {
		consumers.add(&c)
	}
	for c := range maps.Values(s.Channels) {
		channels.add(&c)
	}
	return consumers, channels
}
