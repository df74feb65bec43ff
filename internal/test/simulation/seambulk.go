package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Bulks.

func (t storeSeam) BulkChunk(ctx context.Context, id ident.ID, no int64) ([]byte, error) {
	return ask(ctx, t, "BulkChunk", 0, func(ctx context.Context) ([]byte, error) {
		return t.s.BulkChunk(ctx, id, no)
	})
}

func (t storeSeam) NextBulkQueue(ctx context.Context, after durable.BulkQueue, nowMs int64) (durable.BulkQueue,
	bool, error) {
	return askTwo(ctx, t, "NextBulkQueue", 0, func(ctx context.Context) (durable.BulkQueue, bool, error) {
		return t.s.NextBulkQueue(ctx, after, nowMs)
	})
}

func (t storeSeam) SweepBulks(ctx context.Context, nowMs, beforeMs int64) (bool, error) {
	return ask(ctx, t, "SweepBulks", 0, func(ctx context.Context) (bool, error) {
		return t.s.SweepBulks(ctx, nowMs, beforeMs)
	})
}

func (t storeSeam) ConfirmBulk(ctx context.Context, id ident.ID) error {
	return t.do(ctx, "ConfirmBulk", 0, func(ctx context.Context) error {
		return t.s.ConfirmBulk(ctx, id)
	})
}

// changeBulk makes a call that changes a bulk. A failure of the call is one of the store.
func (t storeSeam) changeBulk(ctx context.Context, op string, change func(ctx context.Context) error) error {
	err := t.do(ctx, op, 0, change)
	if errors.Is(err, errRefused) || errors.Is(err, errLost) || errors.Is(err, context.Canceled) {
		err = errors.Join(durable.ErrFailed, err)
	}
	return err
}

func (t storeSeam) CreateBulk(ctx context.Context, b *durable.Bulk, body []byte) error {
	row, whole := *b, slices.Clone(body)
	return t.changeBulk(ctx, "CreateBulk", func(ctx context.Context) error { return t.s.CreateBulk(ctx, &row, whole) })
}

func (t storeSeam) AddBulkChunk(ctx context.Context, h durable.BulkOwner, no int64, body []byte) error {
	whole := slices.Clone(body)
	return t.changeBulk(ctx, "AddBulkChunk", func(ctx context.Context) error {
		return t.s.AddBulkChunk(ctx, h, no, whole)
	})
}

func (t storeSeam) RestartBulkBody(ctx context.Context, h durable.BulkOwner) error {
	return t.changeBulk(ctx, "RestartBulkBody", func(ctx context.Context) error { return t.s.RestartBulkBody(ctx, h) })
}

func (t storeSeam) RunBulk(ctx context.Context, h durable.BulkOwner, total int64) error {
	return t.changeBulk(ctx, "RunBulk", func(ctx context.Context) error { return t.s.RunBulk(ctx, h, total) })
}

func (t storeSeam) RenewBulk(ctx context.Context, h durable.BulkOwner) error {
	return t.changeBulk(ctx, "RenewBulk", func(ctx context.Context) error { return t.s.RenewBulk(ctx, h) })
}

func (t storeSeam) ReleaseBulk(ctx context.Context, h durable.BulkOwner, waitMs int64, tries int,
	reason string) error {
	return t.changeBulk(ctx, "ReleaseBulk", func(ctx context.Context) error {
		return t.s.ReleaseBulk(ctx, h, waitMs, tries, reason)
	})
}

func (t storeSeam) FailBulk(ctx context.Context, h durable.BulkOwner, reason string) error {
	return t.changeBulk(ctx, "FailBulk", func(ctx context.Context) error { return t.s.FailBulk(ctx, h, reason) })
}

func (t storeSeam) ClaimBulk(ctx context.Context, owner [16]byte, of durable.BulkQueue) (*durable.Bulk, error) {
	return ask(ctx, t, "ClaimBulk", 0, func(ctx context.Context) (*durable.Bulk, error) {
		b, err := t.s.ClaimBulk(ctx, owner, of)
		if b != nil {
			t.l.note("bulk claimed", 0, b.ID, fmt.Sprintf("fence %d, row %d", b.Fence, b.At.Row))
		}
		return b, err
	})
}

// StepBulk may take effect after its error, as long as the owner has the bulk.
func (t storeSeam) StepBulk(ctx context.Context, node durable.NodeLease, step *durable.BulkStep) error {
	rows := make([]durable.Message, len(step.Messages))
	for i, m := range step.Messages {
		rows[i] = *m
	}
	sent := *step
	sent.Messages = pointers(rows)
	var results []error
	err := t.changeBulk(ctx, "StepBulk", func(ctx context.Context) error {
		now := sent
		err := t.s.StepBulk(ctx, node, &now)
		results = now.Results
		t.l.note("bulk step", 0, sent.By.ID, fmt.Sprintf("rows %d to %d: %v", sent.From.Row, sent.To.Row, err))
		return err
	})
	if err == nil {
		step.Results = results
	}
	return err
}
