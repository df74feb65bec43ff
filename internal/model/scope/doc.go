// Package scope is what an API token may do: a set of scopes, and the end of the token.
//
// A scope is written as one word:
//
//	management:read      reads what management reads
//	management:write     does what management does, and reads
//	channel:X            manages the channel X with its consumers, acts as each of them, and stands for
//	                     the token of X where a producer publishes
//	group:G              what channel:X opens, for each channel that carries the group G then
//	consumer:X/K         what the tokens of the channel X and of its consumer K open together
//	dlq                  reads, redrives and deletes the dead letters of all consumers
//
// No scope opens what only the admin token opens, nor the routes of API tokens. Only management:write sees, sets,
// rotates and makes tokens and keys of producers, channels and consumers, which outlive an API token: with another
// scope a token leaves no longer living one behind, except that the broker sends the token of a consumer to the
// callback that the scope may set. That one opens nothing without the token of its channel, but new attempts of the
// dead letters of the consumer.
//
// No scope stands for the token of a producer: a message says who published it, and that is somebody who has the
// token of that producer.
//
// Files: scope.go (the words), demand.go (what a route demands, and which scopes open it).
package scope
