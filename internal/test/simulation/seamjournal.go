package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
)

// The receipts of journals.

func (t storeSeam) Receipts(ctx context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt,
	error) {
	return ask(ctx, t, "Receipts", 0, func(ctx context.Context) (map[durable.ReceiptID]durable.Receipt, error) {
		return t.s.Receipts(ctx, ids)
	})
}

func (t storeSeam) ConfirmReceipt(ctx context.Context, id durable.ReceiptID) error {
	return t.do(ctx, "ConfirmReceipt", 0, func(ctx context.Context) error {
		return t.s.ConfirmReceipt(ctx, id)
	})
}

func (t storeSeam) Replicates(ctx context.Context) error {
	return t.do(ctx, "Replicates", 0, func(ctx context.Context) error {
		return t.s.Replicates(ctx)
	})
}

func (t storeSeam) ForgetReceipts(ctx context.Context, nowMs int64, limit int) (int, error) {
	return ask(ctx, t, "ForgetReceipts", 0, func(ctx context.Context) (int, error) {
		return t.s.ForgetReceipts(ctx, nowMs, limit)
	})
}

// StoreReceipts comes between the insert of messages of a journal and their removal from it, so
// brokers die here more often.
func (t storeSeam) StoreReceipts(ctx context.Context, seen durable.Clock, all []durable.Receipt) error {
	rows := slices.Clone(all)
	_, err := asked(ctx, t, call{op: "StoreReceipts", crash: t.l.w.plan.journal.crash},
		func(ctx context.Context) (any, error) { return nil, t.s.StoreReceipts(ctx, seen, slices.Clone(rows)) })
	return err
}
