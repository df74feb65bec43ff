package standby

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A receiptStore keeps receipts in memory.
type receiptStore struct {
	mu  sync.Mutex
	all map[durable.ReceiptID]durable.Receipt
	// older is what the store says once instead: it went back since the messages were stored.
	older func()
}

func (d *receiptStore) StoreReceipts(_ context.Context, _ durable.Clock, all []durable.Receipt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if older := d.older; older != nil {
		d.older = nil
		older()
		return durable.ErrStale
	}
	for _, r := range all {
		d.all[r.ID] = r
	}
	return nil
}

func (d *receiptStore) Receipts(_ context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt,
	error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[durable.ReceiptID]durable.Receipt{}
	for _, id := range ids {
		if r, ok := d.all[id]; ok {
			found[id] = r
		}
	}
	return found, nil
}

func (d *receiptStore) ConfirmReceipt(context.Context, durable.ReceiptID) error {
	return durable.ErrNotReplicated
}

func sign(part []byte) [4]byte { return [4]byte{part[15], 1, 2, 3} }

// A taker is a standby with the submitter below it.
type taker struct {
	*Standby
	admission *accept.Admission
}

// startJournal runs a submitter with a journal in a folder until the test ends.
func startJournal(t *testing.T, f *memstore.Store, data string, maxBytes int64) (*taker, *receiptStore, func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cat := catalogue.New(f, log)
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), f, "test", log)
	require.NoError(t, err)
	o := journal.Options{MaxBytes: maxBytes, MaxAge: time.Hour, Sign: sign, Log: log}
	d := &receiptStore{all: map[durable.ReceiptID]durable.Receipt{}}
	bodies, counts := share.New(share.Options{Most: 1 << 30}), metrics.New(prometheus.NewRegistry())
	g := accept.NewAdmission(everybody)
	submitter := accept.New(accept.Options{Store: f, Catalogue: cat, Node: node, Admission: g, Bodies: bodies,
		Committed: func([]*durable.Message) {}, Metrics: counts, Log: log})
	p := &taker{admission: g}
	p.Standby = New(Options{Submitter: submitter, Receipts: d, Catalogue: cat, Node: node, Bodies: bodies, Metrics: counts,
		Log: log,
		Journals: Journals{Sign: sign, Open: func() (*journal.Journal, error) { return journal.Open(data, o) },
			Left: func() ([]*journal.Journal, error) {
				left, _, err := journal.Left(data, o)
				return left, err
			}}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	p.Adopt()
	wg.Go(func() { submitter.Run(ctx) })
	wg.Go(func() { p.Run(ctx) })
	stop := func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return p, d, stop
}

// everybody is more than admission ever admits.
const everybody = 1 << 20

// send submits a message with a budget and returns its receipt, if the journal has it.
func (p *taker) send(budget time.Duration, m *durable.Message) (receipt *journal.Receipt, err error) {
	m.ChannelNo = 1
	sub := p.Submit(context.Background(), accept.Terms{Patience: time.Minute, Since: time.Now()}, budget,
		[]*durable.Message{m})
	defer sub.Release()
	sub.Wait()
	if r, ok := sub.Receipt(0); ok {
		receipt = &r
	}
	return receipt, sub.Outcome(0)
}

func (d *receiptStore) await(t *testing.T, r *journal.Receipt) (got durable.Receipt) {
	t.Helper()
	require.NotNil(t, r)
	require.Eventually(t, func() bool {
		found, _ := d.Receipts(t.Context(), []durable.ReceiptID{durable.ReceiptID(*r)})
		got = found[durable.ReceiptID(*r)]
		return len(found) > 0
	}, 30*time.Second, 5*time.Millisecond)
	return got
}

func (f *faultyStore) requireStored(t *testing.T, keys ...string) {
	t.Helper()
	f.Lock()
	defer f.Unlock()
	require.Equal(t, keys, f.stored)
}

// A faultyStore fails as it is told, and refuses a Key that it has.
type faultyStore struct {
	*memstore.Store
	fail   error
	stored []string // payload and Key
}

func newFaultyStore() *faultyStore {
	f := &faultyStore{Store: memstore.Subscribed()}
	f.OnInsert = func(_ int, batch []*durable.Message) []error {
		results := make([]error, len(batch))
		for i, m := range batch {
			entry := string(m.Payload) + " " + m.Key
			switch {
			case f.fail != nil:
				results[i] = f.fail
			case m.ID.Millis() < time.Now().Add(-durable.MaxIDAge).UnixMilli():
				results[i] = durable.ErrStale
			case m.Key != "" && slices.Contains(f.stored, entry):
				results[i] = &durable.DuplicateError{ID: m.ID}
			default:
				f.stored = append(f.stored, entry)
			}
		}
		return results
	}
	return f
}

func (f *faultyStore) set(err error) {
	f.Lock()
	f.fail = err
	f.Unlock()
}

func TestAMessageThatTheStoreCommitsAfterTheBudgetIsNotStoredAgain(t *testing.T) {
	f := newFaultyStore()
	f.Gate = make(chan struct{})
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	receipt, err := p.send(20*time.Millisecond, &durable.Message{Payload: []byte("late")})
	require.NoError(t, err)
	require.True(t, p.has(*receipt))
	f.Gate <- struct{}{}
	got := d.await(t, receipt)
	require.NotEmpty(t, got.Message)
	f.requireStored(t, "late ")
	close(f.Gate)
	receipt, err = p.send(time.Minute, &durable.Message{Payload: []byte("direct")})
	require.NoError(t, err)
	require.Nil(t, receipt)
	require.Eventually(t, func() bool { return p.admission.Inside() == 0 && p.bytes.Taken() == 0 }, 10*time.Second,
		time.Millisecond)
}

func TestMessagesOfAFailingStoreGoToTheJournalAtOnceAndAreStoredInOrder(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	var receipts []*journal.Receipt
	began := time.Now()
	for _, text := range []string{"a", "b", "c"} {
		receipt, err := p.send(20*time.Second, &durable.Message{Payload: []byte(text), Key: "k" + text})
		require.NoError(t, err)
		receipts = append(receipts, receipt)
	}
	require.Less(t, time.Since(began), 20*time.Second)
	f.set(nil)
	for i, receipt := range receipts {
		require.Equal(t, "k"+[]string{"a", "b", "c"}[i], d.await(t, receipt).Message)
	}
	f.requireStored(t, "a ka", "b kb", "c kc")
}

// The store has the messages, and goes back to an earlier state before their receipts are recorded.
func TestMessagesOfTheJournalAreStoredAgainIfTheStoreWentBackSince(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	var receipts []*journal.Receipt
	for _, text := range []string{"a", "b"} {
		receipt, err := p.send(20*time.Second, &durable.Message{Payload: []byte(text), Key: "k" + text})
		require.NoError(t, err)
		receipts = append(receipts, receipt)
	}
	d.mu.Lock()
	d.older = func() {
		f.Lock()
		defer f.Unlock()
		require.NotEmpty(t, f.stored)
		f.stored = nil
	}
	d.mu.Unlock()
	f.set(nil)
	for i, receipt := range receipts {
		require.Equal(t, "k"+[]string{"a", "b"}[i], d.await(t, receipt).Message)
	}
	require.Eventually(t, func() bool { return p.State().Waiting == 0 }, 30*time.Second, 5*time.Millisecond)
	f.Lock()
	defer f.Unlock()
	require.Contains(t, f.stored, "a ka")
	require.Contains(t, f.stored, "b kb")
}

// What the committer said of a message after the journal had it is of the state before.
func TestAStoreThatWentBackIsAskedAboutWhatTheCommitterStored(t *testing.T) {
	f := newFaultyStore()
	p, _, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	p.early[journal.Receipt{1}] = earlyAnswer{id: ident.AtMillis(1)}
	p.StoreWentBack()
	_, known := p.takeEarly(journal.Receipt{1})
	require.False(t, known)
}

func TestAnUnknownAnswerIsLookedUpBeforeTheDrain(t *testing.T) {
	f := newFaultyStore()
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	inner := f.OnInsert
	first := true
	f.OnInsert = func(call int, batch []*durable.Message) []error {
		results := inner(call, batch)
		switch {
		case first: // stored, and the answer is lost
			first = false
			return slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
		case batch[0].Key == "" && errors.Is(results[0], durable.ErrStale):
			return make([]error, len(batch)) // it is found under the ID
		}
		return results
	}
	receipt, err := p.send(20*time.Second, &durable.Message{Payload: []byte("unknown")})
	require.NoError(t, err)
	require.NotEmpty(t, d.await(t, receipt).Message)
	f.requireStored(t, "unknown ")
}

func TestAFullJournalRefusesAndARestartStoresTheRest(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	p, _, stop := startJournal(t, f.Store, data, 20<<10)
	n := 0
	for ; n < 1000; n++ {
		if _, err := p.send(time.Second, &durable.Message{Payload: make([]byte, 500)}); err != nil {
			require.ErrorContains(t, err, problem.ErrJournalFull.Code)
			break
		}
	}
	require.Greater(t, n, 10)
	stop()
	f.set(nil)
	_, d, _ := startJournal(t, f.Store, data, 20<<10)
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.all) == n
	}, 30*time.Second, 5*time.Millisecond)
	require.Len(t, f.stored, n)
}

func TestWhatCanNeverBeStoredLeavesTheJournalWithItsReason(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	receipt, err := p.send(time.Second, &durable.Message{Payload: []byte("bad")})
	require.NoError(t, err)
	f.set(durable.ErrConflict)
	require.Equal(t, "message_id_conflict", d.await(t, receipt).Reason)
}

// A message with an ordering key goes behind those that wait in the journal, also while the store
// takes messages: it must not overtake one of its key.
func TestAMessageWithAKeyDoesNotOvertakeTheJournal(t *testing.T) {
	f := newFaultyStore()
	f.Gate = make(chan struct{}) // the store is well and has not answered yet
	p, d, _ := startJournal(t, f.Store, t.TempDir(), 1<<20)
	keyed := func(payload string) *durable.Message {
		return &durable.Message{ChannelNo: 1, Payload: []byte(payload), Key: payload, Headers: durable.OrderingLine("k", nil)}
	}
	first, err := p.send(20*time.Millisecond, keyed("first"))
	require.NoError(t, err)
	require.NotNil(t, first)
	direct := func(m *durable.Message) bool {
		sub := p.submission(t.Context(), accept.Terms{Since: time.Now()}, time.Hour, []*durable.Message{m})
		_, direct := sub.plan(time.Hour)
		return direct
	}
	require.True(t, direct(keyed("second")))
	require.False(t, direct(&durable.Message{ChannelNo: 1, Payload: []byte("other")}), "one without a key need not wait")
	elsewhere := keyed("elsewhere")
	elsewhere.ChannelNo = 2
	require.False(t, direct(elsewhere), "one of another channel neither")
	second, err := p.send(time.Hour, keyed("second"))
	require.NoError(t, err)
	close(f.Gate)
	d.await(t, first)
	d.await(t, second)
	f.requireStored(t, "first first", "second second")
	require.Eventually(t, func() bool { return !direct(keyed("third")) }, 30*time.Second, time.Millisecond,
		"the journal is empty")
}

func TestABrokerThatStartsGoesOnWithTheJournalThatItFinds(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	keyed := func(p *taker, text string) {
		_, err := p.send(time.Second, &durable.Message{Payload: []byte(text), Key: text,
			Headers: durable.OrderingLine("order", nil)})
		require.NoError(t, err)
	}
	p, _, stop := startJournal(t, f.Store, data, 1<<20)
	keyed(p, "first")
	stop()
	p, d, _ := startJournal(t, f.Store, data, 1<<20)
	require.EqualValues(t, 1, p.State().Waiting, "before the first request is served")
	keyed(p, "second")
	require.EqualValues(t, 2, p.State().Waiting)
	require.NoDirExists(t, filepath.Join(data, "journal", "1"), "two journals have no order")
	f.set(nil)
	require.Eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.all) == 2
	}, 30*time.Second, time.Millisecond)
	f.requireStored(t, "first first", "second second")
}

func TestABrokerThatHasStoppedOpensNoJournal(t *testing.T) {
	f := newFaultyStore()
	f.set(durable.ErrFailed)
	data := t.TempDir()
	p, _, stop := startJournal(t, f.Store, data, 1<<20)
	stop()
	_, err := p.send(time.Millisecond, &durable.Message{Payload: []byte("too late")})
	require.Error(t, err)
	require.NoDirExists(t, filepath.Join(data, "journal"))
}

func TestAFullJournalDoesNotSayThatAMessageIsNotStoredThatMayBe(t *testing.T) {
	tried := ident.AtMillis(1)
	require.ErrorContains(t, journalProblem(journal.ErrFull, tried), problem.ErrOutcomeUnknown.Code)
	require.ErrorContains(t, journalProblem(journal.ErrFull, ident.ID{}), problem.ErrJournalFull.Code)
}

// A full journal is no reason to refuse what the store takes: the health of the store still shows a stall, and
// nothing in the journal tries the store.
func TestAFullJournalAsksTheStoreWithThePatienceOfADurablePublish(t *testing.T) {
	f := newFaultyStore()
	p, _, _ := startJournal(t, f.Store, t.TempDir(), 64)
	p.health.took.Store(int64(time.Hour))
	for range 100 {
		p.health.known.Store(int64(time.Since(start)))
		receipt, err := p.send(time.Millisecond, &durable.Message{Payload: make([]byte, 500)})
		require.NoError(t, err)
		require.Nil(t, receipt)
	}
	f.set(durable.ErrFailed)
	_, err := p.send(time.Millisecond, &durable.Message{Payload: make([]byte, 500)})
	require.ErrorContains(t, err, problem.ErrJournalFull.Code, "neither has it")
}

func TestAMessageThatAdmissionAndAFullJournalHoldUpWaitsForTheStore(t *testing.T) {
	f := newFaultyStore()
	p, _, _ := startJournal(t, f.Store, t.TempDir(), 64)
	require.True(t, p.submitter.Admit(t.Context(), accept.Terms{Patience: time.Minute}, share.Producer(1), everybody, 0),
		"no other message is admitted")
	sub := p.Submit(context.Background(), accept.Terms{Patience: time.Minute}, time.Millisecond,
		[]*durable.Message{{ChannelNo: 1, Payload: make([]byte, 500)}})
	done := make(chan error)
	go func() {
		sub.Wait()
		err := sub.Outcome(0)
		sub.Release()
		done <- err
	}()
	p.submitter.Leave(share.Producer(1), everybody, 0)
	require.NoError(t, <-done)
	require.Eventually(t, func() bool { return p.admission.Inside() == 0 && p.bytes.Taken() == 0 }, 10*time.Second,
		time.Millisecond)
}

func TestAPulseThatIsOlderThanASecondIsAProbe(t *testing.T) {
	p := &storeHealth{}
	p.took.Store(int64(time.Minute))
	p.known.Store(int64(time.Since(start)))
	require.True(t, p.late(time.Second))
	p.known.Store(int64(time.Since(start) - healthLasts))
	require.False(t, p.late(time.Second), "one message asks the store")
	require.True(t, p.late(time.Second), "the others do not wait for its answer")
	p.known.Store(int64(time.Since(start) - healthLasts))
	p.began[0].Store(int64(time.Since(start) - 2*time.Second))
	require.True(t, p.late(time.Second), "a transaction that does not end is no news of the past")
}
