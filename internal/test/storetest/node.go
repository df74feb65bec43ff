package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var nodeTests = map[string]func(*testing.T, *fixture){
	"a sole owner may end every lease": func(t *testing.T, f *fixture) {
		require.NoError(t, f.ForgetNodes(f.ctx))
		nodes, err := f.Nodes(f.ctx)
		require.NoError(t, err)
		for _, n := range nodes {
			require.False(t, n.Alive)
		}
		_, err = f.RenewNode(f.ctx, f.node, time.Minute)
		require.NoError(t, err, "no other broker took the number in between")
	},
	"racing brokers get different node numbers": func(t *testing.T, f *fixture) {
		var mu sync.Mutex
		seen := map[uint16]bool{f.node.No: true}
		race(8, func(int) {
			n, err := f.LeaseNode(f.ctx, "b", time.Hour)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[n.No] {
				t.Errorf("number %d twice", n.No)
			}
			seen[n.No] = true
		})
		require.Len(t, seen, 9)
		nodes, err := f.Nodes(f.ctx)
		require.NoError(t, err)
		require.Len(t, nodes, 9)
		for i, n := range nodes {
			require.EqualValues(t, i, n.No, "numbers are the lowest free ones")
			require.True(t, n.Alive)
		}
	},
	"a released number is the next to be leased, and its old lease is stale": func(t *testing.T, f *fixture) {
		a, err := f.LeaseNode(f.ctx, "a", time.Hour)
		require.NoError(t, err)
		_, err = f.LeaseNode(f.ctx, "b", time.Hour)
		require.NoError(t, err)
		require.NoError(t, f.ReleaseNode(f.ctx, a))
		c, err := f.LeaseNode(f.ctx, "c", time.Hour)
		require.NoError(t, err)
		require.Equal(t, a.No, c.No)
		require.NotEqual(t, a.Token, c.Token)
		_, err = f.RenewNode(f.ctx, a, time.Hour)
		require.ErrorIs(t, err, durable.ErrStale)
		require.NoError(t, f.ReleaseNode(f.ctx, a), "the release of a lost lease is no error")
		c2, err := f.RenewNode(f.ctx, c, time.Hour)
		require.NoError(t, err, "the new owner keeps the number")
		require.Equal(t, c.No, c2.No)
	},
	"an expired lease may be renewed until it is taken": func(t *testing.T, f *fixture) {
		a, err := f.LeaseNode(f.ctx, "a", -time.Second)
		require.NoError(t, err)
		nodes, err := f.Nodes(f.ctx)
		require.NoError(t, err)
		require.False(t, nodes[a.No].Alive)
		a, err = f.RenewNode(f.ctx, a, time.Hour)
		require.NoError(t, err)
		nodes, err = f.Nodes(f.ctx)
		require.NoError(t, err)
		require.True(t, nodes[a.No].Alive)
		require.Equal(t, a.Expires, nodes[a.No].Expires)
		require.Equal(t, a.Token, nodes[a.No].Token)
	},
	"one of several brokers takes an expired number": func(t *testing.T, f *fixture) {
		a, err := f.LeaseNode(f.ctx, "a", -time.Second)
		require.NoError(t, err)
		var mu sync.Mutex
		takers := 0
		race(6, func(int) {
			n, err := f.LeaseNode(f.ctx, "b", time.Hour)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n.No == a.No {
				takers++
			}
		})
		require.Equal(t, 1, takers)
	},
	"a broker's name may be anything": func(t *testing.T, f *fixture) {
		long := make([]byte, 1000)
		n, err := f.LeaseNode(f.ctx, string(long)+"\xff", time.Hour)
		require.NoError(t, err)
		require.NotEqual(t, f.node.No, n.No)
	},
}
