package main

import (
	"context"
	"time"
)

// placeInterval is how often the embedded store is looked for: what is accepted
// in between, after its files were taken away, is lost.
const placeInterval = 500 * time.Millisecond

// keepInPlace ends this broker when the files of the embedded store are taken
// away: SQLite goes on in files without a name, so a 201 would promise what the
// next start cannot find.
func (b *broker) keepInPlace(ctx context.Context) {
	tick := time.NewTicker(placeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := b.store.InPlace(); err != nil {
			select {
			case b.failed <- err:
			default: // it is ending
			}
			return
		}
	}
}
