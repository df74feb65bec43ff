package apitype

// The states of a message.
const (
	Acknowledged = "ACKNOWLEDGED" // stored, fan-out not done yet
	Dispatched   = "DISPATCHED"   // out for delivery
)

// A Message is a message with a page of its jobs.
type Message struct {
	ID              string `json:"ID"`      // of the producer, else of the broker
	Payload         string `json:"Payload"` // base64 when PayloadEncoding is set
	PayloadEncoding string `json:"PayloadEncoding,omitempty"`
	ContentType     string `json:"ContentType"`
	ContentEncoding string `json:"ContentEncoding,omitempty"` // codings of the payload
	Priority        int    `json:"Priority"`                  // higher first
	ProducedBy      string `json:"ProducedBy"`                // name of the producer, not its ID
	ReceivedAt      Time   `json:"ReceivedAt"`                // of the commit
	DispatchedAt    Time   `json:"DispatchedAt"`              // equals ReceivedAt: dispatch begins with the commit
	Status          string `json:"Status"`                    // Acknowledged or Dispatched
	Jobs            []Job  `json:"Jobs"`                      // in the order of their IDs, never null
	Pages           Pages  `json:"Pages"`                     // of Jobs
	// Headers are the headers that go with the message, never null. Here and in ContentType a value that
	// is not UTF-8 is read as Latin-1, as everywhere.
	Headers map[string]string `json:"Headers"`
}

// Base64 is the value of PayloadEncoding and AnswerEncoding: standard base64 with padding, for
// bytes that are not UTF-8.
const Base64 = "base64"

// A Job is a job in its message, in the DLQ and alone. Each of the three sets the links that it
// needs. For the producer of the message ListenerEndpoint is empty, and Reason and Worker are absent.
type Job struct {
	ID               string `json:"ID"`
	ListenerEndpoint string `json:"ListenerEndpoint"` // callback URL of the consumer
	ListenerName     string `json:"ListenerName"`     // name of the consumer, not its ID
	// QUEUED, INFLIGHT, DELIVERED or DEAD; FILTERED: the consumer's filter left the message out
	Status          string `json:"Status"`
	StatusChangedAt Time   `json:"StatusChangedAt"`
	Attempts        int    `json:"Attempts"`                // with the attempt in flight; since the last redrive
	NextAttemptAt   *Time  `json:"NextAttemptAt,omitempty"` // present while the job waits for a retry
	HeldUntil       *Time  `json:"HeldUntil,omitempty"`     // of a job that waits while its consumer is held (Retry-After)
	LeaseUntil      *Time  `json:"LeaseUntil,omitempty"`    // of a job in flight: when its lease ends
	Reason          string `json:"Reason,omitempty"`        // of the last failure
	ReasonCode      string `json:"ReasonCode,omitempty"`    // of a dead job: why it died
	StatusCode      int    `json:"StatusCode,omitempty"`    // last answer of the consumer
	Detail          string `json:"Detail,omitempty"`        // in the DLQ: what a pull worker said beside Reason
	// LeasesLost counts leases that ended without a word; they are attempts, too. GivenBack counts how often a
	// worker gave the job back, which is none. Both count since the last redrive. Of a delivered job only the
	// job alone has them.
	LeasesLost *int `json:"LeasesLost,omitempty"`
	GivenBack  *int `json:"GivenBack,omitempty"`
	// of a job in flight: the pull worker that has it, as it said; of one that is over: who had it last
	Worker        string `json:"Worker,omitempty"`
	WorkerVersion string `json:"WorkerVersion,omitempty"` // as it said
	Fingerprint   string `json:"Fingerprint,omitempty"`   // in the DLQ: the group of its cause

	InReplyTo     string `json:"InReplyTo,omitempty"`    // of a dead reply: the message that it answers
	ChannelID     string `json:"ChannelID,omitempty"`    // of a dead reply: the channel of that message; of a status batch: ~status
	ConsumerID    string `json:"ConsumerID,omitempty"`   // in a message; of a dead reply: who responded
	ConsumerURL   string `json:"ConsumerURL,omitempty"`  // in a message, and alone
	MessageURL    string `json:"MessageURL,omitempty"`   // in the DLQ, and alone
	ChannelURL    string `json:"ChannelURL,omitempty"`   // alone
	ProducerURL   string `json:"ProducerURL,omitempty"`  // alone
	JobURL        string `json:"JobURL,omitempty"`       // in a message
	RetriggerURL  string `json:"RetriggerURL,omitempty"` // in a message
	JobRequeueURL string `json:"JobRequeueURL"`          // "" unless the job is dead, and for a dead job of a replay
}

// A JobDetail is the answer to GET of a job.
type JobDetail struct {
	Job
	History
	Replays []ReplayedJob `json:"Replays,omitempty"` // what replays did with it, the newest first; not shown to producers
}

// A History contains the stored attempts of a job: the failed ones and the successful one.
type History struct {
	// the newest ones in order of time, never null
	AttemptHistory          []Attempt `json:"AttemptHistory"`
	AttemptHistoryTruncated bool      `json:"AttemptHistoryTruncated,omitempty"` // older attempts are not shown
	// AttemptsRemovedBefore: attempts of the job are missing, because those that ended before that time were
	// removed. Absent: none is missing.
	AttemptsRemovedBefore *Time `json:"AttemptsRemovedBefore,omitempty"`
}

// An Attempt is an attempt that ended. For the producer of the message Error, Answer and Worker
// are absent.
type Attempt struct {
	Attempt int  `json:"Attempt"` // from 1; starts again after a redrive
	At      Time `json:"At"`      // of its end
	// absent without an answer, and for a report of a pull consumer
	StatusCode int    `json:"StatusCode,omitempty"`
	DurationMs *int64 `json:"DurationMs,omitempty"` // milliseconds; absent for a success
	Error      string `json:"Error,omitempty"`      // why the attempt failed
	// of an end without answer: not_sent, maybe_processed, lease_ended or given_back
	Phase          string `json:"Phase,omitempty"`
	Answer         string `json:"Answer,omitempty"`         // the first KiB; base64 when AnswerEncoding is set. Of a report: Detail
	AnswerEncoding string `json:"AnswerEncoding,omitempty"` // Base64, or absent
	Worker         string `json:"Worker,omitempty"`         // the pull worker, as it said
	WorkerVersion  string `json:"WorkerVersion,omitempty"`
}

// A DeadLetters is a page of the DLQ of a consumer, or of the dead jobs of a replay, oldest message
// first.
type DeadLetters struct {
	DeadJobs []Job `json:"DeadJobs"` // never null
	Pages    Pages `json:"Pages"`
}
