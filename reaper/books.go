package reaper

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The books of every consumer are balanced now and then, as a person would who asks for them. A
// difference means that jobs were lost or counted twice: it is a metric and an alert, rows of messages
// that do not exist are removed, and the consumer is scanned again from the begin of the question.

const (
	// booksTick is the interval of rounds, booksSoon the one after the store went back, for booksWide:
	// outcomes of messages that are gone may still come in.
	booksTick = time.Minute
	booksSoon = 10 * time.Second
	booksWide = 10 * time.Minute
	// booksSpan bounds the time that a round balances. After the store went back it balances all.
	booksSpan = 24 * time.Hour
	// booksAgain is the interval at which a consumer is repaired again.
	booksAgain = time.Hour
	// strayPage is the number of rows without a message that one transaction removes.
	strayPage = 1000
)

// A balance is the progress of the rounds. Only their loop uses it.
type balance struct {
	*Reaper
	history  int
	wide     time.Time            // until then all is balanced
	repaired map[uint32]time.Time // when a consumer with a difference was repaired
}

func (r *Reaper) booksLoop(ctx context.Context) {
	b := &balance{Reaper: r, repaired: map[uint32]time.Time{}}
	next := time.NewTimer(booksSoon)
	defer next.Stop()
	var failures streak
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(booksSoon)
		}
		if b.another(&b.history) {
			b.wide = time.Now().Add(booksWide)
		}
		if time.Now().After(b.wide) && time.Since(last) < booksTick {
			continue
		}
		failures.round(ctx, r.Log, "the books cannot be balanced; the broker tries again", b.round(ctx))
		last = time.Now()
	}
}

// round balances the books of the consumers that this broker looks after. It returns the last error.
func (b *balance) round(ctx context.Context) (failure error) {
	var total int64
	now := b.Cluster.PastMs()
	least := now - booksSpan.Milliseconds()
	if time.Now().Before(b.wide) {
		least = 0
	}
	for _, no := range b.Catalogue.ConsumerNos() {
		k := b.Catalogue.ConsumerByNo(no)
		through, known := b.settledOf(no)
		if k == nil || !known || !b.Cluster.Owns(no) {
			continue
		}
		from, err := b.from(ctx, k, least, now)
		if err != nil {
			failure = fmt.Errorf("consumer %s: %w", b.name(no), err)
			continue
		}
		difference, err := b.question(ctx, k, ident.Before(from), through)
		if err != nil {
			failure = fmt.Errorf("consumer %s: %w", b.name(no), err)
			continue
		}
		total += max(difference, -difference)
	}
	b.difference.Set(float64(total))
	return failure
}

// from returns where the books of a consumer begin, Unix ms: of what is older, the store has a part.
func (b *balance) from(ctx context.Context, k *durable.Consumer, least, now int64) (int64, error) {
	ch := b.Catalogue.ChannelByNo(k.ChannelNo)
	if ch == nil {
		return least, nil
	}
	own := &ch.Intake.Keeping
	var removed durable.Removal
	if own.Sized() {
		var err error
		if removed, err = b.Store.Removal(ctx, ch.No); err != nil {
			return 0, err
		}
	}
	if kept := own.Kept(now, b.Retention, removed.EndMs()); kept > 0 {
		least = max(least, kept+booksTick.Milliseconds())
	}
	return least, nil
}

// question balances one consumer from an ID on. In most rounds it is about whole stretches of the books,
// which cost a row each. After the store went back it is about all messages.
func (b *balance) question(ctx context.Context, k *durable.Consumer, after, settled ident.ID) (int64, error) {
	if time.Now().Before(b.wide) {
		return b.one(ctx, k, after, ident.Max())
	}
	first, found, err := b.Store.FirstBookRow(ctx, k.No, after)
	if err != nil || !found {
		return 0, err
	}
	return b.one(ctx, k, first, settled)
}

// settledOf returns the settled watermark of a consumer that is scanned here.
func (b *balance) settledOf(no uint32) (ident.ID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.scanStates[no]
	if l == nil {
		return ident.ID{}, false
	}
	return l.settled, true
}

// one balances the books of one consumer, and repairs what does not balance. It returns the
// difference that it found.
func (b *balance) one(ctx context.Context, k *durable.Consumer, after, through ident.ID) (int64, error) {
	if after.Compare(through) >= 0 {
		return 0, nil
	}
	books, err := b.Store.Books(ctx, *k, after, through)
	if err != nil || books.Difference() == 0 {
		return 0, err
	}
	strays, err := b.removeStrays(ctx, k, after, through)
	if err != nil {
		return books.Difference(), err
	}
	if strays > 0 {
		b.Log.Warn("outcomes of messages that the store does not have were removed", "consumer", k.No, "rows", strays)
		if books, err = b.Store.Books(ctx, *k, after, through); err != nil || books.Difference() == 0 {
			return 0, err
		}
	}
	return books.Difference(), b.repair(ctx, k, books.Difference(), after)
}

// repair raises the alert and lets the consumer be scanned again, once an hour.
func (b *balance) repair(ctx context.Context, k *durable.Consumer, difference int64, after ident.ID) error {
	if time.Since(b.repaired[k.No]) < booksAgain {
		return nil
	}
	b.Log.Error("the books of a consumer do not balance; its jobs are compared with the store from the first message "+
		"of the time on",
		"consumer", k.No, "difference", difference)
	err := b.Store.RaiseAlert(ctx, durable.Alert{Event: durable.BooksDiffer, ConsumerNo: k.No, AtMs: b.Cluster.PastMs(),
		Reason: fmt.Sprintf("accepted messages minus what became of them: %d; the consumer is scanned again", difference)})
	if err != nil {
		return err
	}
	if err := b.rewind(ctx, k.No, after); err != nil {
		return err
	}
	b.repaired[k.No] = time.Now()
	return nil
}

// rewind moves the watermark of one consumer back, in the store and here. Nothing is saved meanwhile.
// A crash in between leaves a stored watermark that the next start scans from.
func (b *balance) rewind(ctx context.Context, no uint32, to ident.ID) error {
	if err := b.restored.take(ctx); err != nil {
		return err
	}
	defer b.restored.give()
	if err := b.Store.RewindWatermark(ctx, no, to); err != nil {
		return err
	}
	b.mu.Lock()
	if l := b.scanStates[no]; l != nil {
		l.settled, l.lost = minID(l.settled, to), true
	}
	b.mu.Unlock()
	b.poke()
	return nil
}

// removeStrays removes the outcomes of messages that do not exist.
func (b *balance) removeStrays(ctx context.Context, k *durable.Consumer, after, through ident.ID) (removed int,
	err error) {
	for {
		n, err := b.Store.RemoveStrays(ctx, *k, after, through, strayPage)
		removed += n
		if err != nil || n < strayPage {
			return removed, err
		}
	}
}
