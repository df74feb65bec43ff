// Package sampler counts the jobs of all consumers each ten seconds, for whoever shows or watches them: the
// metrics of consumers, the history, and the alerts of late consumers. One round costs two statements and a few
// pipelines of Redis, however many messages are stored. Nobody waits for a round: the last sample is in memory.
package sampler
