package apitype

// The events of a timeline.
const (
	EventAccepted   = "ACCEPTED"    // the message was stored
	EventAttempt    = "ATTEMPT"     // an attempt ended
	EventLeaseEnded = "LEASE_ENDED" // an attempt has no outcome: its broker or worker did not say one in time
	EventGivenBack  = "GIVEN_BACK"  // a pull worker gave the job back
	EventDelivered  = "DELIVERED"   // the job is over
	EventDead       = "DEAD"        // the job is a dead letter
	EventRedriven   = "REDRIVEN"    // the dead letter became a job again
	EventReplayed   = "REPLAYED"    // a replay delivered the message once more, or its copy is dead

	EventResponseReceived  = "RESPONSE_RECEIVED"  // the response of the consumer was stored
	EventResponseDelivered = "RESPONSE_DELIVERED" // the producer took the response
	EventFailed            = "FAILED"             // there will be no response
)

// A Timeline is a page of what became of a message or of one of its jobs, in order of time.
type Timeline struct {
	Result []TimelineEvent `json:"Result"` // never null
	Pages  Pages           `json:"Pages"`
	// TraceID is the trace of the publish, with the address of its page where the broker knows one.
	TraceID  string `json:"TraceID,omitempty"`
	TraceURL string `json:"TraceURL,omitempty"`
}

// A TimelineEvent is one thing that happened.
type TimelineEvent struct {
	At         Time   `json:"At"`         // of its end
	Event      string `json:"Event"`      // one of the constants
	ConsumerID string `json:"ConsumerID"` // "": it is about the message
	JobID      string `json:"JobID"`      // as ConsumerID
	Attempt    int    `json:"Attempt"`    // from 1, again after a redrive; 0: it is about no attempt
	Status     int    `json:"Status"`     // HTTP status of the consumer; 0: there was none
	DurationMs *int64 `json:"DurationMs"` // null: it took no time, or that is not known
	// Detail says in words what else is known: the broker, how far the attempt came, the failure
	// and the first KiB of the answer. The producer of the message does not see the last two.
	Detail     string `json:"Detail"`
	Broker     *int   `json:"Broker,omitempty"`     // node number of the broker that did it, where it is known
	Phase      string `json:"Phase,omitempty"`      // of an attempt without answer: as in Attempt
	ReasonCode string `json:"ReasonCode,omitempty"` // of EventDead, and of EventReplayed that is dead: as in Job
	Replay     string `json:"Replay,omitempty"`     // ID of the replay whose copy it is about
	// the pull worker that had the job, as it said; not shown to producers
	Worker        string `json:"Worker,omitempty"`
	WorkerVersion string `json:"WorkerVersion,omitempty"`
	// of an attempt, its end, and of EventAccepted: the trace that it is recorded in
	TraceID  string `json:"TraceID,omitempty"`
	TraceURL string `json:"TraceURL,omitempty"`
}
