// Package failpoint names the boundaries between two writes, so that a test can kill the
// process exactly there. An ordinary broker does not set Hit. The main of the end-to-end tests
// sets it, and so does package order in a broker with the tag failpoint (`make faults`), where a
// signal arms a point.
package failpoint

// The points, in the order of a message's life.
const (
	BeforeCommit       = "before-commit"        // a batch is about to be stored
	AfterCommit        = "after-commit"         // stored; not answered, not in Redis
	BeforeFanout       = "before-fanout"        // answered 201; not in Redis
	AfterFanout        = "after-fanout"         // the jobs are in Redis
	AfterClaim         = "after-claim"          // leased; not sent
	BeforePost         = "before-post"          // about to dial the consumer
	AfterPost          = "after-post"           // the consumer has answered; the outcome is not stored
	AfterOutcome       = "after-outcome"        // the outcome is stored; the lease is in Redis
	AfterAck           = "after-ack"            // the job is acknowledged
	AfterPullClaim     = "after-pull-claim"     // a pull job is leased; its worker was not answered
	AfterReclaim       = "after-reclaim"        // the last lease has ended; the dead letter is not stored
	AfterRedrive       = "after-redrive"        // a dead letter is open again; it is not in Redis
	AfterExpiryLease   = "after-expiry-lease"   // an expired job is leased; its death is not stored
	AfterForward       = "after-forward"        // dead letters are published to another channel; that is not noted
	AfterAlert         = "after-alert"          // an alert is published; its row is not ended
	AfterSchedule      = "after-schedule"       // a schedule is stored; not answered
	BeforeDispatch     = "before-dispatch"      // scheduled messages are due; not stored as messages
	AfterDispatch      = "after-dispatch"       // scheduled messages are stored as messages
	AfterBulkChunk     = "after-bulk-chunk"     // a chunk of the body of a bulk is stored; the body is not whole
	AfterBulkBody      = "after-bulk-body"      // the body of a bulk is stored; not answered
	BeforeBulkStep     = "before-bulk-step"     // rows of a bulk are about to be stored as messages
	AfterBulkStep      = "after-bulk-step"      // they are, with the checkpoint; not in Redis
	AfterStatusBatch   = "after-status-batch"   // status events are in a batch; it is not sent
	AfterStatusSent    = "after-status-sent"    // a batch of status events is sent; its row is not ended
	AfterResult        = "after-result"         // the result of a receiver came; it is not stored
	BeforeReply        = "before-reply"         // a response is stored; its reply is not published
	AfterReply         = "after-reply"          // a reply is published; its exchange does not say so
	JournalWritten     = "journal-written"      // messages are written to the journal; not flushed
	JournalFlushed     = "journal-flushed"      // messages are flushed in the journal; not answered
	JournalReplayed    = "journal-replayed"     // messages of the journal are stored; not removed from it
	AfterPage          = "after-page"           // the reconciler has offered a page; its watermark has not moved
	AfterReplay        = "after-replay"         // a replay is stored; not answered
	AfterReplayPage    = "after-replay-page"    // jobs of a replay are in Redis; its progress has not moved
	AfterReplayAdvance = "after-replay-advance" // the progress of a replay has moved
	AfterConfig        = "after-config"         // a consumer is stored; not answered, in no broker's copy
	AfterArchive       = "after-archive"        // messages are in the archive; they are not removed from the store
	Draining           = "draining"             // the broker is stopping; the listener is open
)

// Points lists all of them.
var Points = []string{BeforeCommit, AfterCommit, BeforeFanout, AfterFanout, AfterClaim, BeforePost, AfterPost,
	AfterOutcome,
	AfterAck, AfterPullClaim, AfterReclaim, AfterRedrive, AfterExpiryLease, AfterForward, AfterAlert,
	AfterSchedule, BeforeDispatch, AfterDispatch, AfterBulkChunk, AfterBulkBody, BeforeBulkStep,
	AfterBulkStep, AfterStatusBatch, AfterStatusSent, AfterResult, BeforeReply, AfterReply, JournalWritten,
	JournalFlushed, JournalReplayed, AfterPage, AfterReplay, AfterReplayPage, AfterReplayAdvance,
	AfterConfig, AfterArchive, Draining}

// EnvOrder is the environment variable with the path of a file. At SIGUSR2 a process built
// with the tag failpoint reads an order "<point>:<n>" from that file. It kills itself with
// SIGKILL when it reaches that point for the n-th time. Other builds ignore the variable.
const EnvOrder = "PENSTOCK_FAILPOINT_ORDER"

// Hit is called at each point when it is not nil. Set it before the broker starts.
var Hit func(point string)

// At is a point. Without a Hit it costs a load and a branch.
func At(point string) {
	if Hit != nil {
		Hit(point)
	}
}
