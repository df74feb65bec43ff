package pull

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/panics"
)

func TestAPanicOfACombinedCallFailsThoseInIt(t *testing.T) {
	calls := 0
	c := combiner[int, int]{call: func(context.Context, uint32, []int) ([]int, error) {
		if calls++; calls == 1 {
			panic("boom")
		}
		return []int{7}, nil
	}}
	before := panics.Of(t, "combined call")
	_, err := c.Ask(t.Context(), 1, 1)
	require.Equal(t, 500, problem.From(err).Status)
	require.Equal(t, 1.0, panics.Of(t, "combined call")-before)
	got, err := c.Ask(t.Context(), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 7, got)
}
