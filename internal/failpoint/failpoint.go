// Package failpoint names the boundaries between two writes, so that a test can kill the
// process exactly there. An ordinary broker does not set Hit. The main of the end-to-end
// tests sets it, and so does a build with the tag failpoint (`make faults`), in which a
// signal arms a point.
package failpoint

// The points, in the order of a message's life.
const (
	BeforeCommit  = "before-commit"   // a batch is about to be stored
	AfterCommit   = "after-commit"    // stored; not answered, not in Redis
	BeforeFanout  = "before-fanout"   // answered 201; not in Redis
	AfterFanout   = "after-fanout"    // the jobs are in Redis
	AfterClaim    = "after-claim"     // leased; not sent
	BeforePost    = "before-post"     // about to dial the consumer
	AfterPost     = "after-post"      // the consumer has answered; the outcome is not stored
	AfterOutcome  = "after-outcome"   // the outcome is stored; the lease is in Redis
	AfterSettle   = "after-settle"    // the job is acknowledged
	AfterPullHold = "after-pull-hold" // a pull job is leased; its worker was not answered
	AfterReclaim  = "after-reclaim"   // the last lease has ended; the dead letter is not stored
	AfterRedrive  = "after-redrive"   // a dead letter is open again; it is not in Redis
	AfterPage     = "after-page"      // the reconciler has offered a page; its watermark has not moved
	AfterConfig   = "after-config"    // a consumer is stored; not answered, in no broker's copy
	Draining      = "draining"        // the broker is stopping; the listener is open
)

// Points lists all of them.
var Points = []string{BeforeCommit, AfterCommit, BeforeFanout, AfterFanout, AfterClaim, BeforePost, AfterPost,
	AfterOutcome, AfterSettle, AfterPullHold, AfterReclaim, AfterRedrive, AfterPage, AfterConfig, Draining}

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
