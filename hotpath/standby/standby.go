package standby

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Journals say where the journals are.
type Journals struct {
	// Open opens the journal that this broker writes. It is called with the first message. Nil: the broker
	// has none, and channels with ack=journal are like those with ack=durable.
	Open func() (*journal.Journal, error)
	// Left opens the journals that other brokers have left in the data folder.
	Left func() ([]*journal.Journal, error)
	Sign journal.Signer
}

// A ReceiptStore is the part of durable.Store that knows what became of messages of journals.
type ReceiptStore interface {
	StoreReceipts(ctx context.Context, seen durable.Clock, all []durable.Receipt) error
	Receipts(ctx context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt, error)
}

// Options assemble a standby.
type Options struct {
	Submitter *accept.Submitter // whose transactions show how the store is doing
	Receipts  ReceiptStore
	Catalogue *catalogue.Catalogue
	Node      accept.Node
	Bodies    *share.Bound // bytes of what waits for the store
	Journals  Journals
	Metrics   *metrics.Metrics
	Log       *slog.Logger
}

// A Standby takes messages for which the store is too slow into the journal of the broker.
type Standby struct {
	submitter *accept.Submitter
	receipts  ReceiptStore
	catalogue *catalogue.Catalogue
	node      accept.Node
	bytes     *share.Bound
	o         Journals
	metrics   *metrics.Metrics
	log       *slog.Logger
	health    *storeHealth
	waits     budgets
	names     names

	mu       sync.Mutex
	entering map[uint32]int   // messages with an ordering key that are on their way into the journal, by channel
	own      *journal.Journal // nil: none was opened or taken over yet
	failed   time.Time        // when it could not be opened
	ended    bool             // the broker has stopped: none is opened any more
	all      []*drain         // of every journal that is not empty
	opened   chan *journal.Journal
	early    map[journal.Receipt]earlyAnswer
}

// An earlyAnswer is what the store answered about a message after the journal had it.
type earlyAnswer struct {
	id  ident.ID
	err error
}

// mostEarly bounds the early answers. The drain asks the store about the others.
const mostEarly = 1 << 16

// New returns the standby of a submitter. Call it before the submitter runs.
func New(o Options) *Standby {
	s := &Standby{submitter: o.Submitter, receipts: o.Receipts, catalogue: o.Catalogue, node: o.Node, bytes: o.Bodies,
		o: o.Journals, metrics: o.Metrics, log: o.Log, health: &storeHealth{}, opened: make(chan *journal.Journal, 1),
		early: map[journal.Receipt]earlyAnswer{}, entering: map[uint32]int{}}
	o.Submitter.Watch(s.health)
	return s
}

// StoreWentBack forgets what an earlier state of the store is not known to have: answers of messages
// that the journal still has. The drain asks the store.
func (s *Standby) StoreWentBack() {
	s.mu.Lock()
	clear(s.early)
	s.mu.Unlock()
}

// takeEarly returns what the store answered about a message after the journal had it.
func (s *Standby) takeEarly(receipt journal.Receipt) (earlyAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.early[receipt]
	delete(s.early, receipt)
	return o, ok
}

// behind reports whether messages of a channel wait in a journal or are held there, or are on their way
// into one.
func (s *Standby) behind(channel uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entering[channel] > 0 || s.own != nil && s.own.Waits(channel) ||
		slices.ContainsFunc(s.all, func(r *drain) bool { return r.held[channel] || r.journal.Waits(channel) })
}

// count counts messages of a channel with an ordering key that enter the journal.
func (s *Standby) count(channel uint32, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entering[channel] += n; s.entering[channel] == 0 {
		delete(s.entering, channel)
	}
}

// has reports whether a message surely waits in a journal of this broker.
func (s *Standby) has(r journal.Receipt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.journal.Has(r) {
			return true
		}
	}
	return s.own != nil && s.own.Has(r)
}

// Lookup reads a receipt, and reports whether its message surely waits in a journal of this broker.
func (s *Standby) Lookup(text string) (r journal.Receipt, here, ok bool) {
	if r, ok = journal.ParseReceipt(text, s.o.Sign); !ok {
		return r, false, false
	}
	return r, s.has(r), true
}

// take makes a journal that was left the one that this broker writes, unless it has one.
func (s *Standby) take(j *journal.Journal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return false
	}
	s.own = j
	return true
}

// reopenAfter is the time for which a journal that cannot be opened is left alone.
const reopenAfter = 2 * time.Second

// journal returns the journal that this broker writes.
func (s *Standby) journal() (*journal.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return s.own, nil
	}
	if s.ended {
		return nil, journal.ErrClosed
	}
	if time.Since(s.failed) < reopenAfter {
		return nil, journal.ErrFailed
	}
	j, err := s.o.Open()
	if err != nil {
		s.failed = time.Now()
		s.log.Error("the journal cannot be opened: channels with ack=journal are refused while the store is slow",
			"error", err)
		return nil, errors.Join(journal.ErrFailed, err)
	}
	s.own = j
	s.opened <- j // of capacity 1, and there is one
	return j, nil
}
