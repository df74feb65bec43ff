package jobs

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// leasesRead bounds the leases that Books reads of the queue.
const leasesRead = 10_000

// An Auditor answers with the books of consumers.
type Auditor struct {
	Store interface {
		Books(ctx context.Context, k durable.Consumer, after, through ident.ID) (durable.Books, error)
	}
	Queue interface {
		Leased(ctx context.Context, consumer uint32, most int) ([]ident.ID, error)
	}
}

// Books are the books of a consumer, with the open jobs that are in flight apart.
type Books struct {
	durable.Books
	InFlight int64
}

// Queued returns the open jobs that are not in flight.
func (b Books) Queued() int64 { return b.Open - b.InFlight }

// Books returns the books of a consumer for the messages with after < ID <= through. The store
// counts. The queue only says which open jobs are in flight: while it does not answer, none is.
func (a *Auditor) Books(ctx context.Context, k durable.Consumer, after, through ident.ID) (Books, error) {
	leased, _ := a.Queue.Leased(ctx, k.No, leasesRead)
	stored, err := a.Store.Books(ctx, k, after, through)
	b := Books{Books: stored}
	for _, id := range leased {
		if id.Compare(after) > 0 && id.Compare(through) <= 0 {
			b.InFlight++
		}
	}
	b.InFlight = min(b.InFlight, b.Open)
	return b, err
}
