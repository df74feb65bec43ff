// Package history keeps what the brokers counted, by slots of ten seconds, a minute and ten minutes, and
// answers questions about it.
//
// The Recorder of each broker takes the difference of two snapshots of metrics.Book when a slot of ten
// seconds of the store's clock is over, and adds it to its present slot of each step. A row of the store
// (durable.HistoryRow) is all that one writer, a broker since its start, counted in a slot: written again
// it changes nothing, so no write needs to know whether the one before was committed, and the rows of a
// minute and of ten minutes need no second pass over those of ten seconds. The Reader adds the rows of
// the writers, whose times are histograms, not percentiles.
//
// A broker that stops writes what is left. One that dies loses what it counted since its last write, at
// most ten seconds while the store takes writes. While the store does not, rows wait in memory, a bounded
// number of them; the rows of ten seconds are given up first. Redis has no part in it.
//
// A resource without activity and without waiting jobs has no row. Of the others, the most active ones
// have rows, a bounded number in each slot. The owner of the number 0 removes what is too old.
package history
