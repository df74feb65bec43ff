package simulation

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// No channel of the model has limits of its own, and nothing is archived, so nothing here is called.
const unlimited = "simulation: a channel without limits of its own is limited"

func (t storeSeam) Over(context.Context, durable.Purge) ([]ident.ID, durable.Purged, error) {
	panic(unlimited)
}

func (t storeSeam) CountMessages(context.Context, uint32, ident.ID, int, func(durable.Stretch) bool) (bool, error) {
	panic(unlimited)
}

func (t storeSeam) Stretches(context.Context, uint32) ([]durable.Stretch, error) { panic(unlimited) }

func (t storeSeam) NewestSizes(context.Context, uint32, ident.ID, ident.ID, int) ([]durable.Stretch, error) {
	panic(unlimited)
}

func (t storeSeam) TrimStretches(context.Context, uint32, ident.ID) error { panic(unlimited) }

func (t storeSeam) Removal(context.Context, uint32) (durable.Removal, error) { panic(unlimited) }

func (t storeSeam) RemoveOldAttempts(context.Context, durable.OldAttempts) (ident.ID, int64, error) {
	panic(unlimited)
}

func (t storeSeam) OpenAlarm(context.Context, durable.Alert) (bool, error) { panic(unlimited) }

func (t storeSeam) CloseAlarm(context.Context, durable.Alert) (bool, error) { panic(unlimited) }
