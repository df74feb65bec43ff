// Package publishrate holds producers to the publish rates that are set: of a producer, of a channel, and
// of the channels of a group together. A message takes a place in each of them, or is refused with 429.
//
// All brokers count in Redis, one round trip for a message or for the lines of a chunk. A message without
// such a rate costs three comparisons, and no round trip. While Redis does not answer, each broker counts by
// itself against the whole rate: a message is never refused because of Redis, and the brokers together may
// accept as many times the rate as there are brokers.
//
//   - limiter.go: which rates bound a message, who counts, and the refusal.
//   - window.go: the count of one broker.
package publishrate
