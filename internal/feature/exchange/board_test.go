package exchange

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

func TestAClientBeyondItsShareDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(BoardOptions{Waiters: share.New(share.Options{Most: 4})})
		conn, other := net.Pipe()
		defer conn.Close()
		defer other.Close()
		wait := func(producer uint32) (full bool, took time.Duration) {
			began := time.Now()
			_, full = b.Await(conn, Wish{Key: share.Producer(producer), ChannelNo: 1, Head: durable.Head{ID: ident.AtMillis(1)},
				Until: First, Wait: time.Minute})
			return full, time.Since(began)
		}
		for range 2 {
			go wait(1)
		}
		synctest.Wait()
		full, took := wait(1)
		require.True(t, full)
		require.Zero(t, took)
		require.Equal(t, 2, b.Waiting())
		full, took = wait(2)
		require.False(t, full, "another producer's client waits")
		require.Equal(t, time.Minute, took)
		synctest.Wait()
		require.Zero(t, b.Waiters.Taken())
		require.Zero(t, b.Waiting())
	})
}
