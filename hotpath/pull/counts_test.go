package pull

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A claim that waits may get a job before the store has counted the lease that ended.
func TestAttemptsThatTheStoreDoesNotHaveYetAreLostLeases(t *testing.T) {
	require.Equal(t, jobCounts{}, countsOf(&durable.JobState{}, 0))
	require.Equal(t, jobCounts{leasesLost: 1}, countsOf(&durable.JobState{}, 1))
	s := &durable.JobState{Attempts: 3, LeasesLost: 1, GivenBack: 2}
	require.Equal(t, jobCounts{1, 2}, countsOf(s, 3))
	require.Equal(t, jobCounts{2, 2}, countsOf(s, 4))
	require.Equal(t, jobCounts{1, 2}, countsOf(s, 2), "Redis has lost an attempt")
}
