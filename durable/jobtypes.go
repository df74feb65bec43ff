package durable

import (
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A JobStatus is the stored status of a job. A job without a row is Waiting: it is queued or in
// flight, which only the queue can distinguish.
type JobStatus uint8

// If a job has rows in several tables, the highest of these statuses counts. A delivered job
// stays delivered.
const (
	Waiting   JobStatus = iota
	Open                // failed, given back or redriven, and not over
	Dead                // a dead letter
	Delivered           // over
)

// Over reports whether a job has ended: nothing is delivered any more, unless a dead one is redriven.
func (s JobStatus) Over() bool { return s == Dead || s == Delivered }

// A JobState is the stored state of one job.
type JobState struct {
	Status     JobStatus
	Attempts   int   // attempts charged so far, lost leases included; of a delivered job, the one that succeeded
	ChangedMs  int64 // Unix ms of the last stored change
	NextMs     int64 // Open: Unix ms of the next attempt
	RedrivenMs int64 // Open: Unix ms of the redrive from which the age counts; 0: never redriven
	StatusCode int   // last HTTP status, 0 when none
	Error      string
	Reason     Reason // Dead
	Discarded  bool   // Dead: not in the DLQ any more
	// GivenBack and LeasesLost are of a job that is Open or Dead, since it was stored or redriven:
	// give-backs that were no attempts, and leases that ended without a word, which were some.
	GivenBack, LeasesLost int
	Worker                string // Dead, Delivered: as of an Outcome
	// Fingerprint, Dead: the cause.
	Fingerprint cause.Fingerprint
}

// An OpenJob is a row of open_jobs.
type OpenJob struct {
	ID         ident.ID
	Priority   int
	Attempts   int
	NextMs     int64
	RedrivenMs int64 // as in JobState
}

// A DeadJob is a dead letter.
type DeadJob struct {
	ID         ident.ID
	Priority   int
	Attempts   int
	DiedMs     int64
	StatusCode int
	Error      string
	Reason     Reason
	Answer     []byte
	LeasesLost int    // as in JobState
	GivenBack  int    // as in JobState
	Worker     string // as of an Outcome
	// Fingerprint is the cause of the death.
	Fingerprint cause.Fingerprint
}

// An OutcomeKind is the way in which an attempt ended.
type OutcomeKind uint8

// The ends of an attempt, and of a claim that was none.
const (
	OutcomeDelivered OutcomeKind = iota
	OutcomeRetry
	OutcomeDead
	OutcomeGivenBack // by a pull worker: it was no attempt, and the job is due at NextMs
)

// An Outcome is the end of one attempt of one job. Recording it again changes nothing.
type Outcome struct {
	Kind       OutcomeKind
	ConsumerNo uint32
	ID         ident.ID // of the message
	Priority   int      // stored in open_jobs, from which the queue can be rebuilt
	Attempts   int      // attempts charged, this one included; of OutcomeGivenBack those before the claim
	AtMs       int64    // Unix ms
	StatusCode int      // HTTP status of the consumer, 0 when there was none
	Node       int      // 1 + number of the broker that made the attempt or took its report; 0: not known
	DurationMs int64    // of a push attempt
	Worker     string   // name;version of the pull worker that had the job; empty: it did not say
	ProducerNo uint32   // of the message; 0: it has none, or it is not known
	// Notices are the events of the outcome that the producer wants to hear of, which are stored with
	// it. An outcome with Notices has its ProducerNo.
	Notices StatusKind
	// Tracked is set if the job may have a row in open_jobs or dead_jobs, which the outcome
	// then removes. Without it a delivery takes no statement for such rows.
	Tracked bool
	// Tombstone counts a failure for the tombstone of its consumer; nil: it does not count.
	Tombstone *Tombstone

	// Note of a delivery, cut to 1 KiB, becomes an entry in the list of attempts. An outcome with
	// a note is Tracked.
	Note string

	// Exchange, of a delivery, is stored with it unless the job has one; a response is put into one that
	// awaits it. ReplyTo names the exchange whose reply was delivered.
	Exchange *Exchange
	ReplyTo  ExchangeKey

	// Retry, Dead and GivenBack only:
	NextMs int64  // Retry, GivenBack: Unix ms of the next attempt
	Error  string // description of the failure, cut to 1 KiB
	Phase  Phase  // of a push attempt
	Reason Reason // Dead
	Cause  string // Dead: the failure, where Error says more than that
	Answer []byte // first KiB of the consumer's answer
	Forget bool   // Dead: the job is over and not in the DLQ, as one that is Discarded
}

// An ExchangeKey names an exchange. The zero value is none.
type ExchangeKey struct {
	ConsumerNo uint32
	ID         ident.ID
}

// A Reason says why a job is a dead letter. The numbers are stored.
type Reason uint8

// The reasons. A dead letter of a release without reasons has NoReason.
const (
	NoReason          Reason = iota
	AttemptsExhausted        // its last attempt failed
	Expired                  // it became older than its time to live
	Rejected                 // the policy does not retry the consumer's answer
	BlockedKey               // an earlier job of its ordering key is a dead letter
	ByConsumer               // the pull worker declared it dead
	ConsumerDeleted          // its consumer was deleted
	QueuePurged              // an operator emptied the queue
	WorkerLost               // too many of its leases ended without a word
)

var reasonNames = [...]string{"", "attempts_exhausted", "expired", "rejected", "blocked_key", "by_consumer",
	"consumer_deleted", "purged", "worker_lost"}

// String is the ReasonCode of the API: "" for NoReason, and for a reason of a newer release.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return ""
}

// ParseReason reads a ReasonCode of the API.
func ParseReason(code string) (Reason, bool) {
	i := slices.Index(reasonNames[1:], code)
	return Reason(i + 1), i >= 0
}

// ReasonCodes are the ReasonCodes of the API.
func ReasonCodes() []string { return slices.Clone(reasonNames[1:]) }

// Attempted reports whether the death is the end of an attempt. Other deaths are recorded
// under the attempt number 0, which the history of a job does not show.
func (r Reason) Attempted() bool {
	return r != Expired && r != BlockedKey && r != ConsumerDeleted && r != QueuePurged
}

// attempt is the number under which an outcome is recorded.
func (o *Outcome) attempt() int {
	switch {
	case o.Kind == OutcomeDead && !o.Reason.Attempted():
		return 0
	case o.Kind == OutcomeGivenBack:
		return o.Attempts + 1 // the number under which the worker had it
	}
	return o.Attempts
}

// Expiration is the outcome of a job that became older than its time to live.
func Expiration(consumerNo uint32, id ident.ID, priority, attempts int, atMs int64) Outcome {
	return Outcome{Kind: OutcomeDead, Reason: Expired, ConsumerNo: consumerNo, ID: id, Priority: priority,
		Attempts: attempts,
		AtMs:     atMs, Tracked: true, Error: "the job became older than its time to live"}
}

// A Phase is how far a failed attempt came.
type Phase uint8

// The phases of an attempt.
const (
	PhaseAnswered       Phase = iota // the consumer answered, or the attempt was no request
	PhaseNotSent                     // nothing reached the consumer
	PhaseMaybeProcessed              // the request was sent at least in part, and no answer came
	PhaseLeaseEnded                  // its lease ended without an outcome: no answer is known
	PhaseGivenBack                   // its worker gave the job back
)

// String returns the name of the phase as clients see it.
func (p Phase) String() string {
	return [...]string{"", "not_sent", "maybe_processed", "lease_ended", "given_back"}[min(p, PhaseGivenBack)]
}

// An Attempt is one failed attempt.
type Attempt struct {
	No         int
	AtMs       int64
	StatusCode int
	Error      string
	DurationMs int64
	Answer     []byte
	Phase      Phase
	Worker     string // as of an Outcome
}

// A Tombstone says how many failures make a consumer dead.
type Tombstone struct {
	// ConsumerNo is the consumer that fails, where the outcome is that of a replay; 0: that of the
	// outcome.
	ConsumerNo uint32
	After      int           // more failures than this ...
	Window     time.Duration // ... within a window of that length
	// Tripped is set by Record when this outcome moved the consumer to StateDead.
	Tripped bool
}

// A StatusKind is an event about a job that a producer may want to hear of. The numbers are stored.
type StatusKind uint8

// The kinds of status events, which are also bits of a set of them.
const (
	StatusDelivered StatusKind = 1
	StatusFailed    StatusKind = 2 // an attempt failed, also the last one
	StatusDead      StatusKind = 4
)

// String is the name of the kind as clients see it.
func (k StatusKind) String() string {
	switch k {
	case StatusDelivered:
		return "DELIVERED"
	case StatusFailed:
		return "FAILED"
	}
	return "DEAD"
}
