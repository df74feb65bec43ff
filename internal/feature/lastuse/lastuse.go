package lastuse

import (
	"context"
	"log/slog"
	"time"
)

// Every is how often uses are noted.
const Every = time.Minute

// A Keeper notes uses. Its fields are set before Run.
type Keeper struct {
	Store interface {
		UsedAPITokens(ctx context.Context, used map[string]int64) error
	}
	Tokens interface {
		UsedSince(ms int64) map[string]int64
	}
	Log   *slog.Logger
	Every time.Duration // 0: Every

	noted int64 // Unix ms of the latest use that is in the store
}

// Run notes uses until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	every := k.Every
	if every == 0 {
		every = Every
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.note(ctx)
		}
	}
}

// note stores what was used since the last time. What fails is stored the next time.
func (k *Keeper) note(ctx context.Context) {
	used := k.Tokens.UsedSince(k.noted)
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, Every/2)
	defer cancel()
	if err := k.Store.UsedAPITokens(ctx, used); err != nil {
		k.Log.Debug("the uses of API tokens cannot be noted", "error", err)
		return
	}
	for _, ms := range used {
		k.noted = max(k.noted, ms)
	}
}
