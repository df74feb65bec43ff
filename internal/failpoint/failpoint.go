// Package failpoint names the boundaries between two writes, so that a test can
// kill the process exactly there. Nothing in an ordinary broker sets Hit: only the
// main of its end-to-end tests does, and a build with the tag failpoint, which
// `make faults` makes, where a signal arms a point.
package failpoint

// The points, in the order of a message's life.
const (
	BeforeCommit  = "before-commit"   // a batch is about to be stored
	AfterCommit   = "after-commit"    // stored; nobody was answered, nothing is in Redis
	BeforeFanout  = "before-fanout"   // answered 201; nothing is in Redis
	AfterFanout   = "after-fanout"    // the jobs are in Redis
	AfterClaim    = "after-claim"     // leased; not sent
	BeforePost    = "before-post"     // about to dial the consumer
	AfterPost     = "after-post"      // the consumer has answered; nothing is stored
	AfterOutcome  = "after-outcome"   // the outcome is stored; Redis does not know
	AfterSettle   = "after-settle"    // Redis knows
	AfterPullHold = "after-pull-hold" // a pull job is leased; its worker was not answered
	AfterReclaim  = "after-reclaim"   // an ended lease is exhausted; its death is not stored
	AfterRedrive  = "after-redrive"   // a dead letter is open again; it is not in Redis
	AfterPage     = "after-page"      // the reconciler has offered a page; its mark has not moved
	AfterConfig   = "after-config"    // a consumer is stored; nobody was answered, no copy knows it
	Draining      = "draining"        // told to stop; the listener is open
)

// Points lists all of them.
var Points = []string{BeforeCommit, AfterCommit, BeforeFanout, AfterFanout, AfterClaim, BeforePost, AfterPost,
	AfterOutcome, AfterSettle, AfterPullHold, AfterReclaim, AfterRedrive, AfterPage, AfterConfig, Draining}

// EnvOrder names a file. At SIGUSR2 a process built with the tag failpoint reads
// an order from it, "<point>:<n>", and kills itself as kill -9 would the n-th time
// it comes to that point. Others do not look at it.
const EnvOrder = "PENSTOCK_FAILPOINT_ORDER"

// Hit is called at each point when it is not nil. Set it before anything runs.
var Hit func(point string)

// At marks a point. Without a Hit it costs a load and a branch.
func At(point string) {
	if Hit != nil {
		Hit(point)
	}
}
