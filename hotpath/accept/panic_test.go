package accept

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/memstore"
)

func TestAPanicOfAnInsertMakesItsMessagesUnknown(t *testing.T) {
	f := &memstore.Store{OnInsert: func(call int, batch []*durable.Message) []error {
		if call == 0 {
			panic("boom")
		}
		return make([]error, len(batch))
	}}
	c, committed, stop := startSubmitter(t, f, time.Second)
	require.ErrorIs(t, c.add("a"), durable.ErrOutcomeUnknown)
	require.NoError(t, c.add("b"))
	stop()
	require.Equal(t, 1, committed())
}

// What is stored is acknowledged, whether or not it came to the queue: the
// reconciler finds it.
func TestAPanicBehindTheCommitLeavesTheAnswer(t *testing.T) {
	c, _, _ := startSubmitter(t, &memstore.Store{}, time.Second)
	c.committer.committed = func([]*durable.Message) { panic("boom") }
	require.NoError(t, c.add("a"))
	require.NoError(t, c.add("b"))
}
