package redisq

import (
	"errors"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// ErrLeaseLost says that the caller's lease is not the current one: it ended and
// was reclaimed, or the job is over.
var ErrLeaseLost = errors.New("redisq: lease lost")

// ErrFailed says that Redis did not answer a call, or refused it: it is away, full, too
// slow or wrongly set up. The call may have had its effect all the same.
var ErrFailed = errors.New("redisq: Redis failed")

// MaxPriority is the highest priority: 0..1023, higher first.
const MaxPriority = 1023

// MaxBatch is the largest number of jobs in one script call; methods split larger slices.
const MaxBatch = 500

// A Job enters the queue of one consumer.
type Job struct {
	ID       ident.ID // of the message
	Priority int
	Delay    time.Duration // until it is due; 0 and below: at once
	Attempts int           // attempts charged before
}

// A Source tells Enqueue where jobs come from and so how careful it must be.
type Source uint8

const (
	// Fresh jobs were committed by this process just now and never offered to
	// Redis before: membership is checked in the ready set alone, unless jobs as
	// new as these have come another way; then everywhere, and they are marked
	// FlagVerify.
	Fresh Source = iota
	// Repeated jobs may have been offered before: the reply was lost, or an
	// operator asks. Known ones are left alone, new ones are marked FlagVerify.
	Repeated
	// Recovered jobs come from a walk of the store: as Repeated, also marked
	// FlagRecovered, and admitted although the window has spilled jobs, because
	// the walk is what brings those back.
	Recovered
)

// Enqueued counts what became of the jobs of one call.
type Enqueued struct {
	Added   int // now in the queue
	Known   int // were in the queue: nothing changed
	Spilled int // no room in the window: only the store has them
	// SpilledPriority is the highest priority known to have jobs outside the
	// window, -1 when none.
	SpilledPriority int
	// FirstSpilled is the index of the first job that was spilled, -1 when none.
	FirstSpilled int
	// Epoch is the state in Redis that the jobs were, or may have been, offered to;
	// of EnqueueMany alone, and also where that failed.
	Epoch string
	// Leases are those of the jobs that EnqueueMany leased at once, as Batch.Lease asked.
	Leases []Lease
}

// Flags of a job.
type Flags uint8

const (
	// FlagVerify marks a job that may have been delivered already as far as
	// Redis can tell (reclaimed, offered twice): ask the store before sending.
	FlagVerify Flags = 1 << iota
	// FlagRecovered marks a job that came back from the store after its state in
	// Redis was lost: it may have been in flight, and its holder may still report.
	FlagRecovered
)

// A Lease is the right to work on one job until a time.
type Lease struct {
	ID       ident.ID
	Priority int
	Attempt  int // counted at claim: the first is 1
	Flags    Flags
	Token    string // proof of the lease, unique for ever
}

// A Claim is the answer to Queue.Claim.
type Claim struct {
	Leases []Lease
	// NextDue is how long until a delayed job is due or a lease ends; 0 when
	// there is none. With Leases empty it says when asking again makes sense.
	NextDue time.Duration
	Ready   int  // jobs left in the ready set
	Spilled bool // the store holds more than the window: wake the refill
}

// A State is where a job stands in Redis.
type State uint8

const (
	Missing State = iota // unknown to Redis
	Ready
	Delayed
	Leased
)

// A Standing is one job as Redis sees it.
type Standing struct {
	State    State
	Priority int
	Attempts int
	Flags    Flags
	Token    string    // Leased: the current token
	At       time.Time // Delayed: due; Leased: deadline (Redis clock)
}

// A Cursor is a place in the ready order: peeking goes on behind it.
type Cursor struct {
	Score int64
	ID    ident.ID
}

// A Waiting job as Peek lists it.
type Waiting struct {
	ID       ident.ID
	Priority int
	Attempts int
	Flags    Flags
	Score    int64
}

// Expired is the answer to Queue.Reclaim.
type Expired struct {
	// Returned went back to ready, marked FlagVerify.
	Returned []ident.ID
	// Exhausted have no attempt left. They stay leased a little longer, so that
	// nobody else handles them, for the caller to store as dead and then Ack.
	Exhausted []Lease
	NextDue   time.Duration // as in Claim
	Empty     bool          // the consumer has no job in Redis at all
}

// Stats are the sizes of one consumer's sets.
type Stats struct {
	Ready, Delayed, Leased int
	SpilledPriority        int           // -1 when nothing is outside the window
	Spills                 int64         // counts calls that spilled, for SettleSpilled
	Oldest                 time.Duration // since the job at the head of ready became due; 0 when none
	NextDue                time.Duration
	Epoch                  string // of the state that this is about, for Recover
}
