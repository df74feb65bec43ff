package bench

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// MaxMessages bounds one measurement.
const MaxMessages = 100_000_000

// pageLen is the number of messages in a page of the ledger. Pages are allocated as the sequence
// grows: about 22 bytes per message and one bit per message and consumer.
const pageLen = 1 << 16

// A Ledger records the promises to producers and the deliveries to consumers, and finds the
// difference. Messages of a channel go to all its consumers. Channels take turns, with a stripe of
// consecutive sequences each. All methods but Reconcile may be called concurrently.
type Ledger struct {
	run      uint64
	channels uint64
	stripe   uint64
	mix      Mix
	key      func(seq uint64) string
	slackNs  int64 // a message overtaken by less than this does not count
	lateNs   int64

	pages     []atomic.Pointer[page]
	consumers []*account

	planned, acked, refused, uncertain atomic.Int64
}

type page struct {
	sum   [pageLen]atomic.Uint32
	acked [pageLen]atomic.Int32 // 10 us since the first page, +1; 0: not acknowledged
	state [pageLen]uint8        // written by the producer of the message, read after all have ended
	id    [pageLen]ident.ID     // the same
}

const (
	stateUnknown = iota // never sent, or no definite answer
	stateAcked
	stateRefused
)

// An account records the deliveries to one consumer.
type account struct {
	channel int
	name    string
	pages   []atomic.Pointer[[pageLen / 64]atomic.Uint64] // by local index
	latest  []atomic.Int64                                // per priority level: Unix ns of the latest first delivery

	first, late, overtaken, corrupt, strangers atomic.Int64
	maxOvertaken                               atomic.Int64 // ns

	mu     sync.Mutex
	copies map[uint64]int // deliveries beyond the first, by sequence
	bad    []string       // descriptions of corrupted deliveries, up to maxListed
}

// maxListed bounds every list of offenders in a verdict.
const maxListed = 100

// LedgerOptions of NewLedger.
type LedgerOptions struct {
	Run       uint64
	Channels  int
	Stripe    int    // consecutive messages that go to the same channel; 0: 1
	Messages  uint64 // at most; 0: MaxMessages
	Mix       Mix
	SlackNs   int64 // tolerated overtaking
	LateNs    int64 // 0: no delivery is late
	Consumers []Subscription
	// Key names a message whose ID the broker did not report; may be nil.
	Key func(seq uint64) string
}

// A Subscription is a consumer of a channel.
type Subscription struct {
	Channel int
	Name    string
}

// NewLedger returns an empty ledger.
func NewLedger(o LedgerOptions) *Ledger {
	if o.Messages == 0 {
		o.Messages = MaxMessages
	}
	pages := int(o.Messages/pageLen) + 1
	l := &Ledger{
		run: o.Run, channels: uint64(max(o.Channels, 1)), stripe: uint64(max(o.Stripe,
			1)), key: o.Key, mix: o.Mix, slackNs: o.SlackNs, lateNs: o.LateNs,
		pages: make([]atomic.Pointer[page], pages),
	}
	for _, s := range o.Consumers {
		l.consumers = append(l.consumers, &account{
			channel: s.Channel, name: s.Name,
			pages:  make([]atomic.Pointer[[pageLen / 64]atomic.Uint64], pages/int(l.channels)+2),
			latest: make([]atomic.Int64, o.Mix.Len()),
			copies: map[uint64]int{},
		})
	}
	return l
}

func (l *Ledger) page(seq uint64) *page {
	slot := &l.pages[seq/pageLen]
	if p := slot.Load(); p != nil {
		return p
	}
	slot.CompareAndSwap(nil, new(page))
	return slot.Load()
}

// Channel returns the channel of a message.
func (l *Ledger) Channel(seq uint64) int { return int(seq / l.stripe % l.channels) }

// local returns the index of a message among those of its channel.
func (l *Ledger) local(seq uint64) uint64 {
	return seq/(l.stripe*l.channels)*l.stripe + seq%l.stripe
}

// Plan records the checksum of a message before it is sent.
func (l *Ledger) Plan(seq uint64, bodySum uint32) {
	l.page(seq).sum[seq%pageLen].Store(bodySum)
	l.planned.Add(1)
}

// Acked notes that the broker took responsibility, at a time in ns since the
// start of the run. id is the broker's ID of the message, zero when unknown.
func (l *Ledger) Acked(seq uint64, atNs int64, id ident.ID) {
	p := l.page(seq)
	i := seq % pageLen
	p.state[i], p.id[i] = stateAcked, id
	p.acked[i].Store(int32(min(atNs/ackUnit, 1<<31-2)) + 1)
	l.acked.Add(1)
}

// ackUnit is the resolution of the time of an acknowledgement, in ns. 31 bits of it are six hours.
// Later acknowledgements get the time at that limit, which only makes the order check more
// tolerant.
const ackUnit = 10_000

// Refused records an answer that promises that nothing was stored.
func (l *Ledger) Refused(seq uint64) {
	l.page(seq).state[seq%pageLen] = stateRefused
	l.refused.Add(1)
}

// Uncertain records that no answer tells whether the message is stored.
func (l *Ledger) Uncertain(seq uint64) {
	l.uncertain.Add(1)
}

// A Delivery is one arrival at a consumer.
type Delivery struct {
	Consumer int // index into LedgerOptions.Consumers
	ID       Identity
	Known    bool   // ID could be read
	Sum      uint32 // of the body as it arrived
	Label    string // the broker's message ID, for the report
	NowNs    int64  // Unix ns
	StartNs  int64  // Unix ns of the start of the run
}

// Received records a delivery that the consumer accepts and reports whether it is the first of its
// message to this consumer.
func (l *Ledger) Received(d Delivery) (first bool) {
	a := l.consumers[d.Consumer]
	if d.Known && d.ID.Run != l.run {
		a.strangers.Add(1)
		return false
	}
	seq := d.ID.Seq
	if !d.Known || seq/pageLen >= uint64(len(l.pages)) || l.pages[seq/pageLen].Load() == nil ||
		l.Channel(seq) != a.channel {
		a.corrupted("message " + d.Label + ": identity unreadable, or of no message of the channel")
		return false
	}
	p := l.page(seq)
	if p.sum[seq%pageLen].Load() != d.Sum {
		a.corrupted(fmt.Sprintf("message %s, sequence %d: body differs from what was sent", d.Label, seq))
	}
	local := l.local(seq)
	slot := &a.pages[local/pageLen]
	if slot.Load() == nil {
		slot.CompareAndSwap(nil, new([pageLen / 64]atomic.Uint64))
	}
	mask := uint64(1) << (local % 64)
	if slot.Load()[local%pageLen/64].Or(mask)&mask != 0 {
		a.mu.Lock()
		a.copies[seq]++
		a.mu.Unlock()
		return false
	}
	a.first.Add(1)
	if l.lateNs > 0 && d.NowNs-d.ID.Intended > l.lateNs {
		a.late.Add(1)
	}
	a.order(l, d, p.acked[seq%pageLen].Load())
	return true
}

// order counts an overtaken message: it was acknowledged long before a message of lower priority
// that arrived first. The slack allows for jobs that are claimed together and in flight at the same
// time.
func (a *account) order(l *Ledger, d Delivery, acked int32) {
	level := l.mix.Level(d.ID.Seq)
	storeMax(&a.latest[level], d.NowNs)
	if acked == 0 || level == 0 {
		return
	}
	ackedAt := d.StartNs + int64(acked-1)*ackUnit
	for lower := range level {
		if by := a.latest[lower].Load() - ackedAt; by > l.slackNs {
			a.overtaken.Add(1)
			storeMax(&a.maxOvertaken, by)
			return
		}
	}
}

func storeMax(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if n <= old || v.CompareAndSwap(old, n) {
			return
		}
	}
}

func (a *account) corrupted(what string) {
	a.corrupt.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.bad) < maxListed {
		a.bad = append(a.bad, what)
	}
}

// has reports whether the consumer got the message.
func (a *account) has(local uint64) bool {
	p := a.pages[local/pageLen].Load()
	return p != nil && p[local%pageLen/64].Load()&(1<<(local%64)) != 0
}

// Delivered is the number of first deliveries so far, over all consumers.
func (l *Ledger) Delivered() int64 {
	var n int64
	for _, a := range l.consumers {
		n += a.first.Load()
	}
	return n
}

// Counts returns how many messages were acknowledged, refused and left uncertain so far.
func (l *Ledger) Counts() (acked, refused, uncertain int64) {
	return l.acked.Load(), l.refused.Load(), l.uncertain.Load()
}

// Owed returns the number of first deliveries that acknowledged messages still need. It is computed
// from counters, so deliveries of uncertain messages make it too small.
func (l *Ledger) Owed() int64 {
	perChannel := 0
	if len(l.consumers) > 0 {
		perChannel = len(l.consumers) / int(l.channels)
	}
	return l.acked.Load()*int64(perChannel) - l.Delivered()
}
