package memstore

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
)

// Schedule refuses all: this store has no schedules.
func (s *Store) Schedule(_ context.Context, _ durable.NodeLease, batch []*durable.Scheduled) []error {
	return slices.Repeat([]error{durable.ErrFailed}, len(batch))
}

// ChangeScheduled finds none.
func (s *Store) ChangeScheduled(context.Context, durable.ScheduleChange) (*durable.Scheduled, error) {
	return nil, durable.ErrNotFound
}
