package simulation

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

// The worlds have no replays.

func (t storeSeam) Replay(context.Context, uint32) (durable.Replay, error) {
	return durable.Replay{}, durable.ErrNotFound
}

func (t storeSeam) Sizes(context.Context, uint32, ident.ID, ident.ID, int) ([]durable.Sized, error) {
	return nil, nil
}

func (t storeSeam) AdvanceReplay(context.Context, uint32, ident.ID, ident.ID, int64, int64) (bool, error) {
	return false, nil
}

func (t storeSeam) SetReplayState(context.Context, uint32, durable.ReplayState) (durable.Replay, error) {
	return durable.Replay{}, durable.ErrNotFound
}
