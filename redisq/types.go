package redisq

import (
	"errors"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// ErrLeaseLost means that the caller's lease is not the current one: reclaim ended it, or
// the job is over.
var ErrLeaseLost = errors.New("redisq: lease lost")

// ErrFailed means that Redis did not answer a call, or refused it: it is away, full, too slow or
// misconfigured. The call may have had its effect.
var ErrFailed = errors.New("redisq: Redis failed")

// MaxPriority is the highest priority: 0..1023, higher first.
const MaxPriority = 1023

// MaxBatch is the largest number of jobs in one script call. Methods split larger slices.
const MaxBatch = 500

// A Job enters the queue of one consumer.
type Job struct {
	ID       ident.ID // of the message
	Priority int
	Delay    time.Duration // until it is due; 0 and below: at once
	Attempts int           // attempts charged so far
	Worker   string        // of Expired: as of Lease
}

// A Source tells Enqueue where jobs come from, and thereby which sets it must search.
type Source uint8

const (
	// Fresh jobs have just been stored by this process and are offered for the first
	// time. Enqueue searches the ready set only. If jobs as new as these have been added
	// by any other call, it searches every set and flags the jobs FlagVerify.
	Fresh Source = iota
	// Repeated jobs may have been offered before: a reply was lost, or an operator
	// requested it. Known jobs stay unchanged; new ones are flagged FlagVerify.
	Repeated
	// Recovered jobs come from a scan of the store. They are treated as Repeated and also
	// flagged FlagRecovered. They enter the window even while jobs are spilled, because
	// the scan is the way in which spilled jobs return.
	Recovered
)

// Enqueued counts what became of the jobs of one call.
type Enqueued struct {
	Added   int // new in the queue
	Known   int // already in the queue, unchanged
	Spilled int // outside the full window, in the store only
	// SpilledPriority is the highest priority that has jobs outside the window, -1 if
	// there are none.
	SpilledPriority int
	// FirstSpilled is the index of the first spilled job, -1 if there is none.
	FirstSpilled int
	// Epoch names the state in Redis that the jobs were first sent to. Only EnqueueMany
	// sets it, also after an error.
	Epoch string
	// Leases are the leases that EnqueueMany got at once, as Batch.Lease requests.
	Leases []Lease
}

// Flags of a job.
type Flags uint8

const (
	// FlagVerify marks a job that may already be delivered, for example a reclaimed one
	// or one that was offered twice. The store must be asked before the job is sent.
	FlagVerify Flags = 1 << iota
	// FlagRecovered marks a job that a scan of the store has added. It may have been in
	// flight when Redis lost its state, and its worker may still report an outcome.
	FlagRecovered
)

// A Lease is the right to work on one job until a time.
type Lease struct {
	ID       ident.ID
	Priority int
	Attempt  int // counted at the claim; the first is 1
	Flags    Flags
	Token    string // proof of the lease; never reused
	Granted  string // where rates count the lease, for Release, Park and Regrant; empty without rates
	Worker   string // name;version of the worker that has it, without a bar; empty: it did not say
}

// A Claim is the answer to Queue.Claim.
type Claim struct {
	Leases []Lease
	// NextDue is the time until a delayed job is due or a lease ends, 0 if there is
	// none. After a Claim without Leases, the next Claim is useful at that time.
	NextDue time.Duration
	Ready   int   // jobs left in the ready set
	Retries int   // those of Ready that have attempts
	Spilled bool  // jobs are outside the window, so the refill has work
	Whole   bool  // no job is outside: Redis has all that the last scan of the store found
	Limited Limit // the limit that kept a ready job back; NextDue is then the time of the next try
}

// A Limit says which limit has refused a lease.
type Limit uint8

const (
	NoLimit          Limit = iota
	RateLimit              // a rate
	ConcurrencyLimit       // the number of leases at the same time
)

// A State is the state of a job in Redis.
type State uint8

const (
	Missing State = iota // unknown to Redis
	Ready
	Delayed
	Leased
)

// A Standing describes one job in Redis.
type Standing struct {
	State    State
	Priority int
	Attempts int
	Flags    Flags
	Token    string    // Leased: the current token
	Worker   string    // Leased: as of Lease
	At       time.Time // Delayed: due; Leased: deadline (Redis clock)
}

// A Cursor is a place among the ready jobs. Peek lists the jobs after it.
type Cursor struct {
	Score int64
	ID    ident.ID
}

// A Waiting is a ready job as Peek lists it.
type Waiting struct {
	ID       ident.ID
	Priority int
	Attempts int
	Flags    Flags
	Score    int64
}

// Expired is the answer to Queue.Reclaim.
type Expired struct {
	// Returned jobs are ready again, flagged FlagVerify. Their Attempts include the one whose
	// lease ended.
	Returned []Job
	// Exhausted jobs have no attempt left. They are leased to the caller for a short
	// time, in which the caller stores them as dead and then calls Ack.
	Exhausted []Lease
	NextDue   time.Duration // as in Claim
	Empty     bool          // the consumer has no job in Redis at all
}

// Stats are the sizes of one consumer's sets.
type Stats struct {
	Ready, Delayed, Leased int
	SpilledPriority        int           // -1 if no job is known to be outside the window
	Whole                  bool          // and a scan of the store has ended since the state began
	Spills                 int64         // number of calls that spilled jobs, for ReplaceSpilled
	Oldest                 time.Duration // age of the first ready job since it became due; 0 if none
	NextDue                time.Duration
	Epoch                  string // of the described state, for Recover
}
