// Package rehearse is `bench rehearse`. It loads an installation of one's own, such as staging, has
// something taken away from it for a while, gives it back, and says what would have been lost and
// how long it took until all was well.
//
// # A rehearsal
//
// A rehearsal makes a producer, a channel, a push consumer and a pull consumer of its own, and
// removes them at the end. It publishes at an even rate, in three phases: calm, outage, and after
// it until all is well. What it takes away is named by a scenario. The consumers are its own.
// How the stores and the broker of the installation are stopped and started only their owner
// knows, so these are two commands, --break and --mend. --mend is run whatever happens in between,
// also after a signal.
//
// # The verdict
//
// Each message has an ID, and a post without an answer is repeated with it until there is one. So each
// message ends as accepted, as refused, or as unknown. An accepted message that a consumer did not get,
// and that is none of its dead letters, is lost, and the rehearsal fails. All is well when posts are
// accepted and deliveries are no later than before, for five seconds: see steady.
//
// # Files
//
//	config.go     flags and scenarios
//	run.go        the phases of a rehearsal
//	traffic.go    posts, the push consumer, the pull consumer
//	books.go      what became of each message
//	report.go     the verdict, for people and as JSON
package rehearse
