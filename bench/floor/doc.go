// Command floor is the smallest program that takes a message the way that the broker takes it:
// group commit into MySQL, 201, a sorted set in Redis, a claim, a POST to the consumer, a row of the
// outcome, and the removal from Redis. It flushes as the broker does. It checks no token, forwards
// no header, keeps no lease and repairs nothing. What a broker costs more than the floor is the price of
// its promises.
//
// FLOOR_WITH names stages, separated by commas, that are those of the broker: scripts/bridge.sh adds
// one at a time, and so says what each costs.
//
//	accept    the listener, tokens, headers, admission, deadlines: hotpath/publish, hotpath/accept
//	insert    the insert of messages with its guards: durable
//	queue     enqueue, claim with leases and acknowledge: the scripts of redisq
//	post      headers, egress rules and the client of deliveries: internal/tool/egress
//	outcome   the rows of outcomes: durable
//	process   late timers and fewer garbage collections: internal/tool/timerslack, internal/tool/gcpace
//
// It is a program to measure with, for one channel with one push consumer on loopback. It answers
// what bench run asks of a broker: PUT of producer, channel and consumer, GET /readyz, POST broadcast.
package main
