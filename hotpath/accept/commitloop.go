package accept

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// storeAll stores items and returns one result each. It is the one loop around the transactions of
// what producers send: messages, schedules, and steps of bulks. prepare returns why an item may not be
// stored by the copy of the catalogue; otherwise it makes the item ready for store.
//
// The copy may be older than the store. So items that prepare refused at first, and those that the
// store reports as stale, are tried again with present knowledge, the latter until ctx ends.
func storeAll[T any](ctx context.Context, c *committer, items []T, prepare func(T) error, store func(durable.NodeLease,
	[]T) []error) []error {
	results, again := storeOnce(c, items, prepare, store, true)
	for try := 0; len(again) > 0 && ctx.Err() == nil; try++ {
		part := make([]T, len(again))
		for j, i := range again {
			part[j] = items[i]
		}
		var got []error
		var more []int
		if err := c.refresh(ctx, try); err != nil {
			got = slices.Repeat([]error{err}, len(part))
		} else {
			got, more = storeOnce(c, part, prepare, store, false)
		}
		for j, i := range again {
			results[i] = got[j]
		}
		for j, k := range more {
			more[j] = again[k]
		}
		again = more
	}
	return results
}

// storeOnce is one round of storeAll, in one transaction. again are the items to try again, in order.
func storeOnce[T any](c *committer, items []T, prepare func(T) error, store func(durable.NodeLease, []T) []error,
	first bool) (results []error, again []int) {
	lease, err := c.lease() // before the resources are looked up
	if err != nil {
		return slices.Repeat([]error{err}, len(items)), nil
	}
	for i, item := range items {
		if err := prepare(item); err != nil {
			if results == nil {
				results = make([]error, len(items))
			}
			results[i] = err
		}
	}
	if results == nil {
		results = store(lease, items)
	} else {
		var ready []T
		var index []int
		for i, err := range results {
			switch {
			case err == nil:
				ready, index = append(ready, items[i]), append(index, i)
			case first && !errors.Is(err, ErrWithheld): // another broker may have resumed the channel
				again = append(again, i)
			}
		}
		if len(ready) > 0 {
			for j, err := range store(lease, ready) {
				results[index[j]] = err
			}
		}
	}
	for i, err := range results {
		// What may be stored already is not stored again under another ID.
		if errors.Is(err, durable.ErrStale) && !errors.Is(err, durable.ErrOutcomeUnknown) {
			results[i], again = problem.ErrUnavailable.Because(err), append(again, i)
		}
	}
	slices.Sort(again)
	return results, again
}

// lease returns the lease of the node, with the version of the catalogue that this broker knows. IDs
// are given after it, see cluster.Node.Renew.
func (c *committer) lease() (durable.NodeLease, error) {
	lease, err := c.node.Lease()
	lease.Known = c.catalogue.Version()
	return lease, err
}

// refresh updates the catalogue and the node lease.
func (c *committer) refresh(ctx context.Context, try int) error {
	if try > 0 { // the first refresh is almost always enough
		select {
		case <-time.After(time.Duration(min(try, 20)) * 5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := c.catalogue.Refresh(ctx); err != nil {
		return err
	}
	return c.node.Renew(ctx)
}
