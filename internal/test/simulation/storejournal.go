package simulation

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// setIntake says how a channel takes messages in: a record of package policy.
func (s *store) setIntake(channel uint32, record string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	ch := &s.channels[channel-1]
	ch.Intake, ch.Version = record, s.version
}

// pauseChannel pauses the intake of a channel, or resumes it.
func (s *store) pauseChannel(no uint32, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := &s.channels[no-1]; ch.Paused != paused {
		s.version++
		ch.Paused, ch.Version = paused, s.version
	}
}

// isForgotten reports whether the identity of a message from a journal is not stored: a flaw.
func (s *store) isForgotten(m *durable.Message) bool {
	return s.flaw == receiptKeysAreForgotten && strings.HasPrefix(m.Key, durable.ReceiptKey(durable.ReceiptID{})[:1])
}

// storeReceipts records what became of messages of journals. The first record of a receipt stays.
func (s *store) storeReceipts(all []durable.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		if _, known := s.receipts[r.ID]; !known {
			s.receipts[r.ID] = r
		}
	}
}

func (s *store) receiptsOf(ids []durable.ReceiptID) map[durable.ReceiptID]durable.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[durable.ReceiptID]durable.Receipt{}
	for _, id := range ids {
		if r, known := s.receipts[id]; known {
			out[id] = r
		}
	}
	return out
}

// StoreReceipts comes between the insert of messages of a journal and their removal from it, so
// brokers die here more often.
func (t storeSeam) StoreReceipts(ctx context.Context, seen durable.Clock, all []durable.Receipt) error {
	w, rows, stale := t.l.w, slices.Clone(all), atomic.Bool{}
	err := t.l.do(ctx, call{op: "StoreReceipts", rates: w.plan.store, away: w.storeAway.now, crash: w.plan.journal.crash,
		effect: func() {
			if stale.Store(t.s.wentBackSince(seen)); !stale.Load() {
				t.s.storeReceipts(rows)
			}
		}})
	if err == nil && stale.Load() {
		return durable.ErrStale
	}
	return err
}

// wentBackSince reports whether the store has another history than one that was seen.
func (s *store) wentBackSince(seen durable.Clock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seen != durable.Clock{} && (s.history != seen.History || s.beat < seen.Beat)
}

func (t storeSeam) Receipts(ctx context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt,
	error) {
	ids = slices.Clone(ids)
	return read(ctx, t, "Receipts", 0, func() map[durable.ReceiptID]durable.Receipt { return t.s.receiptsOf(ids) })
}

// ConfirmReceipt, Replicates and ConfirmBulk refuse, as the embedded store does: there is no second
// server.
func (t storeSeam) ConfirmReceipt(context.Context, durable.ReceiptID) error {
	return durable.ErrNotReplicated
}

func (t storeSeam) Replicates(context.Context) error { return durable.ErrNotReplicated }

func (t storeSeam) ConfirmBulk(context.Context, ident.ID) error { return durable.ErrNotReplicated }

// ForgetReceipts does nothing: no run lasts as long as receipts are kept.
func (t storeSeam) ForgetReceipts(context.Context, int64, int) (int, error) { return 0, nil }
