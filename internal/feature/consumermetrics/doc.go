// Package consumermetrics is the page of metrics by consumer, in the text format of Prometheus: the second
// door of the metrics, beside the page of constant size.
//
// A scrape asks no store and no Redis. Levels (what waits, is in flight, is dead) are those of the last
// sample of package sampler, and the same at every broker. Counters are what this broker did since it
// started (metrics.Book), so their sum over the brokers counts. States, holds, paces and contacts are those
// that this broker knows.
//
// There are at most MostConsumers on a page, and a gauge says how many are left out. Those whose oldest
// waiting job is the oldest come first, then those with dead letters, then the others, by the IDs of channel
// and consumer: between two scrapes the choice changes only where jobs have moved.
package consumermetrics
