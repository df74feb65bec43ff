package reaper

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// keysTick is the interval at which Idempotency-Keys that are too old are removed.
	keysTick = time.Minute
	// keysPage is the number of keys that one transaction removes.
	keysPage = 2000
)

// keysLoop removes Idempotency-Keys that are too old. A key that is used again is replaced at once;
// this bounds those that are not. One broker does it.
func (r *Reaper) keysLoop(ctx context.Context) {
	r.rounds(ctx, keysTick, "idempotency keys or receipts that are too old cannot be removed; the broker tries again",
		func(ctx context.Context) error {
			if !r.Cluster.Owns(0) {
				return nil
			}
			return r.forgetKeys(ctx)
		})
}

// forgetKeys removes all keys, and all receipts of journals, that are too old. It takes a fifth of one
// connection's time.
func (r *Reaper) forgetKeys(ctx context.Context) error {
	err := r.forgetOld(ctx, r.Store.ForgetKeys)
	return errors.Join(err, r.forgetOld(ctx, r.Store.ForgetReceipts))
}

func (r *Reaper) forgetOld(ctx context.Context, page func(ctx context.Context, nowMs int64, limit int) (int,
	error)) error {
	for {
		began := time.Now()
		n := 0
		err := guard.Do("removal of idempotency keys and receipts", func() (err error) {
			n, err = page(ctx, r.Cluster.PastMs(), keysPage)
			return err
		})
		if err != nil || n < keysPage {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(purgePause * time.Since(began)):
		}
	}
}
