package durable

import "github.com/penstock-broker/penstock/internal/ident"

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
)

var reasonNames = [...]string{"", "attempts_exhausted", "expired", "rejected", "blocked_key", "by_consumer", "consumer_deleted"}

// String is the ReasonCode of the API: "" for NoReason, and for a reason of a newer release.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return ""
}

// Attempted reports whether the death is the end of an attempt. Other deaths are recorded
// under the attempt number 0, which the history of a job does not show.
func (r Reason) Attempted() bool { return r != Expired && r != BlockedKey && r != ConsumerDeleted }

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
	return Outcome{Kind: OutcomeDead, Reason: Expired, ConsumerNo: consumerNo, ID: id, Priority: priority, Attempts: attempts,
		AtMs: atMs, Tracked: true, Error: "the job became older than its time to live"}
}
