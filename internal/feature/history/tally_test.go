package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
)

func consumer(no uint32) of { return of{durable.HistoryOfConsumer, no} }

// sumOf adds the rows of a step of a consumer that wait.
func sumOf(t *tally, step int, no uint32) (delivered int64, rows int) {
	for k, r := range t.rows {
		if k.step == step && k.of == consumer(no) {
			delivered += r.Delivered
			rows++
		}
	}
	return delivered, rows
}

func TestARollUpIsTheSumOfItsSlots(t *testing.T) {
	tally := newTally(10, 100_000)
	const begin = 1_700_000_400_000 // of ten minutes
	require.Zero(t, begin%600_000)
	for i := range int64(90) { // a quarter of an hour
		omitted, lost := tally.add(begin+10_000*i, map[of]*sums{consumer(7): {delivered: i, oldestMs: i}})
		require.Zero(t, omitted+lost)
	}
	for step, rows := range map[int]int{10: 90, 60: 15, 600: 2} {
		delivered, n := sumOf(tally, step, 7)
		require.Equal(t, rows, n)
		require.EqualValues(t, 89*90/2, delivered)
	}
	first := tally.rows[rowKey{slot{600, begin}, consumer(7), tally.writer}]
	require.EqualValues(t, 59*60/2, first.Delivered)
	require.EqualValues(t, 59, first.OldestMs, "the largest of the slot")
}

func TestARowThatIsWrittenAgainHasAllThatWasCountedInTheSlot(t *testing.T) {
	tally := newTally(10, 100)
	tally.add(600_000, map[of]*sums{consumer(7): {delivered: 1}})
	tally.written(tally.waits())
	require.Empty(t, tally.rows)
	tally.add(610_000, map[of]*sums{consumer(7): {delivered: 2}})
	delivered, rows := sumOf(tally, 10, 7)
	require.Equal(t, 1, rows)
	require.EqualValues(t, 2, delivered)
	for _, step := range []int{60, 600} {
		delivered, rows = sumOf(tally, step, 7)
		require.Equal(t, 1, rows)
		require.EqualValues(t, 3, delivered)
	}
}

func TestAClockThatGoesBackMakesANewWriter(t *testing.T) {
	tally := newTally(10, 100)
	tally.add(600_000, map[of]*sums{consumer(7): {delivered: 1}})
	tally.add(620_000, map[of]*sums{consumer(7): {delivered: 2}})
	was := tally.writer
	tally.add(600_000, map[of]*sums{consumer(7): {delivered: 4}})
	require.NotEqual(t, was, tally.writer)
	for _, step := range []int{10, 60, 600} {
		delivered, _ := sumOf(tally, step, 7)
		require.EqualValues(t, 7, delivered)
	}
}

func TestASlotHasTheMostActiveConsumersAndThenThoseWithABacklog(t *testing.T) {
	tally := newTally(3, 100)
	omitted, _ := tally.add(600_000, map[of]*sums{consumer(1): {failed: 1}, consumer(2): {oldestMs: 50},
		consumer(3): {delivered: 9}, consumer(4): {oldestMs: 90}, consumer(5): {oldestMs: 10},
		{durable.HistoryOfAll, 0}: {delivered: 9}})
	require.Equal(t, 2, omitted)
	has := func(step int, no uint32) bool { _, rows := sumOf(tally, step, no); return rows > 0 }
	for no, want := range map[uint32]bool{1: true, 2: false, 3: true, 4: true, 5: false} {
		require.Equal(t, want, has(10, no), no)
	}
	require.Contains(t, tally.rows, rowKey{slot{10, 600_000}, of{durable.HistoryOfAll, 0}, tally.writer})
	// A longer slot keeps those that it has, so its rows have no holes.
	omitted, _ = tally.add(610_000, map[of]*sums{consumer(2): {delivered: 100}, consumer(3): {delivered: 1}})
	require.Equal(t, 2, omitted)
	require.True(t, has(10, 2))
	require.False(t, has(60, 2))
	require.False(t, has(600, 2))
	delivered, _ := sumOf(tally, 60, 3)
	require.EqualValues(t, 10, delivered)
}

func TestRowsThatWaitTooLongAreGivenUpTheFinestFirst(t *testing.T) {
	tally := newTally(10, 20)
	lost := 0
	for i := range int64(60) {
		_, n := tally.add(600_000+10_000*i, map[of]*sums{consumer(7): {delivered: 1}})
		lost += n
	}
	require.Len(t, tally.rows, 20)
	require.Equal(t, 60+10+1-20, lost)
	for _, step := range []int{60, 600} {
		delivered, _ := sumOf(tally, step, 7)
		require.EqualValues(t, 60, delivered)
	}
	require.Contains(t, tally.rows, rowKey{slot{10, 600_000 + 590_000}, consumer(7), tally.writer}, "the newest one")
}

func TestAHistogramIsReadAsItWasEncodedAndAddsUp(t *testing.T) {
	var empty, h, read metrics.Histogram
	require.Empty(t, encode(&empty))
	for i := range h.Counts {
		if i%3 != 1 {
			h.Counts[i] = 1 << i
		}
	}
	b := encode(&h)
	require.Less(t, len(b), durable.MaxHistogram)
	addTo(&read, b)
	addTo(&read, b)
	addTo(&read, nil)
	for i, n := range h.Counts {
		require.Equal(t, 2*n, read.Counts[i])
	}
	var full, most metrics.Histogram
	for i := range full.Counts {
		full.Counts[i] = 1<<64 - 1
	}
	require.LessOrEqual(t, len(encode(&full)), durable.MaxHistogram)
	addTo(&most, encode(&full))
	require.Equal(t, full.Counts, most.Counts)
}

func FuzzAnEncodedHistogramOfAnotherFormCountsNothingOutside(f *testing.F) {
	var h metrics.Histogram
	h.Counts[3], h.Counts[33] = 5, 1<<40
	f.Add(encode(&h))
	f.Add([]byte{format, 40, 1})
	f.Add([]byte{format, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{2, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h metrics.Histogram
		addTo(&h, b) // does not panic
		var again metrics.Histogram
		addTo(&again, encode(&h))
		if h.Counts != again.Counts {
			t.Fatalf("%v became %v", h.Counts, again.Counts)
		}
	})
}
