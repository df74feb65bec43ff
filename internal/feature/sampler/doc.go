// Package sampler counts the jobs of all consumers each ten seconds, for whoever shows or watches them: the
// metrics of consumers, the history, and the alerts of late consumers. One round costs four statements, and a few
// pipelines of Redis about the consumers that may have a job: idle ones cost Redis nothing, however many there
// are. Nobody waits for a round: the last sample is in memory.
package sampler
