// Package scope is what an API token may do: a set of scopes, and the end of the token.
//
// A scope is written as one word:
//
//	management:read      reads what management reads
//	management:write     does what management does, and reads
//	channel:X            manages the channel X with its consumers, acts as each of them, and stands for
//	                     the token of X where a producer publishes
//	consumer:X/K         what the tokens of the channel X and of its consumer K open together
//	dlq                  reads, redrives and deletes the dead letters of all consumers
//
// No scope opens what only the admin token opens, nor the routes of API tokens: a token cannot make a longer
// living one. No scope stands for the token of a producer: a message says who published it, and that is
// somebody who has the token of that producer.
//
// Files: scope.go (the words), demand.go (what a route demands, and which scopes open it).
package scope
