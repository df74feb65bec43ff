package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var keptLeaseTests = map[string]func(*testing.T, *fixture){
	"leases that were kept are taken once": func(t *testing.T, f *fixture) {
		none, err := f.TakeLeases(f.ctx)
		require.NoError(t, err)
		require.Empty(t, none)
		var want []durable.KeptLease
		for n := range 1200 {
			want = append(want, durable.KeptLease{ConsumerNo: uint32(1 + n/600), ID: ident.AtMillis(int64(1 + n)),
				Priority: n % 3, Attempt: 1 + n, Token: "dhq3u6jc1is07cbb.1", UntilMs: 1 << 41,
				Worker: []string{"", "billing-3;1.8.2"}[n%2]})
		}
		require.NoError(t, f.KeepLeases(f.ctx, want[:7]))
		require.NoError(t, f.KeepLeases(f.ctx, want), "in place of the earlier ones")
		got, err := f.TakeLeases(f.ctx)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = f.TakeLeases(f.ctx)
		require.NoError(t, err)
		require.Empty(t, got)
	},
}
