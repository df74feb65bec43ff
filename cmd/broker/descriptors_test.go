package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientsAreBoundedByWhatOthersNeed(t *testing.T) {
	for _, tc := range []struct{ files, push, want int }{
		{20_000, 512, 20_000 - 512 - spareDescriptors},
		{1024, 512, 512},
		{256, 512, 128},
		{1 << 30, 512, 256 << 10},
		{0, 512, 256 << 10},
	} {
		require.Equal(t, tc.want, maxConnections(tc.files, tc.push), "%+v", tc)
	}
}
