// Package panics reads how many panics a process has contained.
package panics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// Of returns how many panics of a part were counted.
func Of(t *testing.T, where string) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(guard.Panics)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == where {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}
