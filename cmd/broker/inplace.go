package main

import (
	"context"
	"time"
)

// placeInterval is the interval of the checks for the files of the embedded store. Messages
// accepted between the removal of the files and the next check are lost.
const placeInterval = 500 * time.Millisecond

// keepInPlace ends this broker if the files of the embedded store are removed. SQLite keeps using
// the unlinked files, so a 201 would promise messages that the next start cannot find.
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
			default: // the broker is already stopping
			}
			return
		}
	}
}
