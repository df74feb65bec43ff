package metrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestQuantilesLieInTheBucketOfTheirTime(t *testing.T) {
	var h Histogram
	require.Zero(t, h.Quantile(.5), "of nothing")
	h.Observe(0, 1)
	h.Observe(3*time.Millisecond, 8)
	h.Observe(time.Hour, 1)
	require.EqualValues(t, 10, h.Count())
	require.Equal(t, HistogramBound(0), h.Quantile(.1))
	for _, q := range []float64{.2, .5, .9} {
		require.Greater(t, h.Quantile(q), HistogramBound(5), "%g", q)
		require.LessOrEqual(t, h.Quantile(q), HistogramBound(6), "%g: 4 ms", q)
	}
	require.Equal(t, HistogramBound(Buckets-2), h.Quantile(1), "nobody knows how long it took")
	require.Equal(t, 4*time.Millisecond, HistogramBound(6))

	later := h
	later.Observe(HistogramBound(6), 5)
	since := later.Since(&h)
	require.EqualValues(t, 5, since.Count())
	require.EqualValues(t, 5, since.Counts[6], "a bound belongs to its bucket")
	require.Equal(t, 20*time.Millisecond, since.Sum)
	h.Add(&since)
	require.Equal(t, later, h)
}

// end is an outcome of consumer 1.
func end(kind durable.OutcomeKind, change func(*durable.Outcome)) durable.Outcome {
	o := durable.Outcome{Kind: kind, ConsumerNo: 1}
	if change != nil {
		change(&o)
	}
	return o
}

func TestEachOutcomeCountsOnce(t *testing.T) {
	lost := func(o *durable.Outcome) { o.Phase = durable.PhaseLeaseEnded }
	pushed := func(o *durable.Outcome) { o.StatusCode, o.DurationMs = 200, 7 }
	for name, c := range map[string]struct {
		of   durable.Outcome
		want ConsumerCounts
	}{
		"delivered":              {end(durable.OutcomeDelivered, nil), ConsumerCounts{Delivered: 1}},
		"failed":                 {end(durable.OutcomeRetry, nil), ConsumerCounts{Failed: 1}},
		"dead by its last lease": {end(durable.OutcomeDead, lost), ConsumerCounts{Dead: 1, LeasesLost: 1}},
		"given back":             {end(durable.OutcomeGivenBack, nil), ConsumerCounts{GivenBack: 1}},
		"purged and not in the DLQ": {end(durable.OutcomeDead, func(o *durable.Outcome) { o.Forget = true }),
			ConsumerCounts{}},
	} {
		b := NewBook(nil)
		b.Ended([]durable.Outcome{c.of})
		require.Equal(t, c.want, b.Consumer(1), name)
	}
	b := NewBook(nil)
	b.LeasesLost(2, 3)
	require.Equal(t, ConsumerCounts{Lost: 3, LeasesLost: 3}, b.Consumer(2))
	b.Ended([]durable.Outcome{end(durable.OutcomeDelivered, pushed), end(durable.OutcomeDelivered, nil)})
	c := b.Consumer(1)
	require.EqualValues(t, 1, c.Delivery.Count(), "a pull job has no attempt of the broker's")
	require.Equal(t, 7*time.Millisecond, c.Delivery.Sum)
}

func TestAReplayCountsForItsConsumer(t *testing.T) {
	b := NewBook(func(no uint32) uint32 {
		if no == 9 {
			return 1
		}
		return no
	})
	b.Ended([]durable.Outcome{{ConsumerNo: 9}, {ConsumerNo: 1}})
	require.EqualValues(t, 2, b.Consumer(1).Delivered)
}

func TestSumsNeverFall(t *testing.T) {
	b := NewBook(nil)
	b.Stored([]*durable.Message{{ChannelNo: 5}, {ChannelNo: 5}, {ChannelNo: 6}, {ChannelNo: 5}})
	b.Acked(5, time.Millisecond, 3)
	b.Queued(1, 4)
	b.Limited(2)
	b.Ended([]durable.Outcome{{ConsumerNo: 1, DurationMs: 1}, {ConsumerNo: 2}})
	before := b.Snapshot()
	require.EqualValues(t, 3, before.Channels[5].Accepted)
	consumers, channels := before.Sum()
	require.EqualValues(t, 4, consumers.Accepted)
	require.EqualValues(t, 2, consumers.Delivered)
	require.EqualValues(t, 4, channels.Accepted)
	ack := channels.Ack
	require.EqualValues(t, 3, ack.Count())

	none := func(uint32) bool { return false }
	b.Prune(func(no uint32) bool { return no != 1 }, none)
	after := b.Snapshot()
	require.Len(t, after.Consumers, 1)
	require.Empty(t, after.Channels)
	nowConsumers, nowChannels := after.Sum()
	require.Equal(t, consumers, nowConsumers)
	require.Equal(t, channels, nowChannels)
	b.Prune(none, none)
	last := b.Snapshot()
	nowConsumers, _ = last.Sum()
	require.Equal(t, consumers, nowConsumers)
}

// A broker's rooms are told nothing in tests that need no counts.
func TestNoBookCountsNothing(t *testing.T) {
	var b *Book
	b.Stored([]*durable.Message{{}})
	b.Acked(1, 1, 1)
	b.Queued(1, 1)
	b.Ended([]durable.Outcome{{}})
	b.Limited(1)
}
