package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStagesHaveNames(t *testing.T) {
	with, err := stagesOf(" insert,queue ,")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"insert": true, "queue": true}, with)
	_, err = stagesOf("inserts")
	require.ErrorContains(t, err, "outcome")
}

// A group hands over each item once, in the order in which they came, and no more than its limit.
func TestAGroupHandsOverEachItemOnce(t *testing.T) {
	got := make(chan []int)
	g := newGroup(1, 3, time.Millisecond, func(items []int) { got <- items })
	g.add(1, 2, 3, 4, 5)
	g.add(6, 7)
	var all []int
	for len(all) < 7 {
		items := <-got
		require.LessOrEqual(t, len(items), 3)
		all = append(all, items...)
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, all)
}
