package alerts

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A consumer or channel that has many alerts in a minute has them handed on after those of others.
func TestTheAlertsOfALoudConsumerComeAfterThoseOfOthers(t *testing.T) {
	var p parts
	now := time.Now()
	about := func(channel, consumer string) int {
		return p.priority(&durable.Alert{ChannelID: channel, ConsumerID: consumer}, now)
	}
	for range partOfConsumer {
		require.Equal(t, usual, about("c", "loud"))
	}
	require.Equal(t, loud, about("c", "loud"))
	require.Equal(t, usual, about("c", "quiet"))
	for i := range partOfChannel {
		about("many", fmt.Sprint(i))
	}
	require.Equal(t, loud, about("many", "another"))
	require.Equal(t, usual, about("c", "quiet"))
	now = now.Add(partsEvery)
	require.Equal(t, usual, about("c", "loud"))
	require.Equal(t, usual, about("many", "another"))
}
