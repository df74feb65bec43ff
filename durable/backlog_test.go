package durable_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A page that asks before an action counts the jobs of a consumer, and has three statements for all that it shows.
func TestTheBacklogOfAConsumerTakesTwoStatements(t *testing.T) {
	store := openSQLite(t)
	ctx := t.Context()
	_, _, err := store.PutChannel(ctx, durable.Put{ID: "c", NewToken: "t"})
	require.NoError(t, err)
	url := "http://127.0.0.1:1/"
	k, _, err := store.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "t"}, ChannelID: "c",
		CallbackURL: &url})
	require.NoError(t, err)
	var sent atomic.Int64
	store.Tap(func(text string) {
		if strings.HasPrefix(strings.TrimSpace(text), "SELECT") {
			sent.Add(1)
		}
	})
	before := sent.Load()
	_, err = store.Backlog(ctx, k, 10)
	require.NoError(t, err)
	require.EqualValues(t, 2, sent.Load()-before)
}
