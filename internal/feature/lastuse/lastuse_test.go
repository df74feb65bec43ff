package lastuse

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

type world struct {
	used   map[string]int64
	stored []map[string]int64
	err    error
}

func (w *world) UsedSince(ms int64) map[string]int64 {
	out := map[string]int64{}
	for id, at := range w.used {
		if at > ms {
			out[id] = at
		}
	}
	return out
}

func (w *world) UsedAPITokens(_ context.Context, used map[string]int64) error {
	w.stored = append(w.stored, used)
	return w.err
}

func TestEachUseIsStoredOnceAndAfterAFailureAgain(t *testing.T) {
	w := &world{used: map[string]int64{"a": 5, "b": 7}, err: errors.New("no")}
	k := &Keeper{Store: w, Tokens: w, Log: slog.Default()}
	k.note(t.Context())
	w.err = nil
	k.note(t.Context())
	k.note(t.Context())
	w.used["a"] = 9
	k.note(t.Context())
	require.Equal(t, []map[string]int64{{"a": 5, "b": 7}, {"a": 5, "b": 7}, {"a": 9}}, w.stored)
}
