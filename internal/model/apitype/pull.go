package apitype

import "time"

// QueuedJobs is a page of the jobs that a pull consumer may claim, highest priority first.
type QueuedJobs struct {
	Result []QueuedJob `json:"Result"` // never null
	Pages  Pages       `json:"Pages"`
	Why    string      `json:"Why,omitempty"` // of an empty first page: as of ClaimedJobs
}

// A QueuedJob is a job that may be claimed.
type QueuedJob struct {
	ID                 string      `json:"ID"`
	Priority           int         `json:"Priority"`           // higher first
	IncrementalTimeout int         `json:"IncrementalTimeout"` // always 0: clients of the older implementation decode it
	Attempts           int         `json:"Attempts"`           // claims so far
	LeasesLost         int         `json:"LeasesLost,omitempty"`
	GivenBack          int         `json:"GivenBack,omitempty"`
	Replay             string      `json:"Replay,omitempty"` // ID of the replay that repeats the job
	Message            PullMessage `json:"Message"`
}

// A PullMessage is a message as pull consumers get it.
type PullMessage struct {
	// unique in the channel: of the producer where it is, else of the broker
	MessageID       string `json:"MessageID"`
	ProducerID      string `json:"ProducerID,omitempty"` // absent: the broker made the message
	Payload         string `json:"Payload"`              // base64 when PayloadEncoding is set
	PayloadEncoding string `json:"PayloadEncoding,omitempty"`
	// Headers are the metadata headers, never null. A value that is not UTF-8 is read as Latin-1,
	// so that no byte is lost.
	Headers         map[string]string `json:"Headers"`
	ContentType     string            `json:"ContentType"`               // a value that is not UTF-8 as in Headers
	ContentEncoding string            `json:"ContentEncoding,omitempty"` // codings of the payload
}

// A MoveRequest moves one job of a pull consumer. With Lease, or with the lease in X-Broker-Lease, QUEUED
// gives the job back and INFLIGHT extends its lease. A member that is null counts as absent.
type MoveRequest struct {
	Lease     string `json:"Lease,omitempty"`
	NextState string `json:"NextState"` // INFLIGHT, DELIVERED, DEAD or QUEUED
	// IncrementalTimeout lengthens the lease of INFLIGHT: whole seconds.
	IncrementalTimeout int64 `json:"IncrementalTimeout,omitempty"`
	// Timeout is of INFLIGHT with a lease: as of an Update.
	Timeout int64 `json:"Timeout,omitempty"`
	Delay   int64 `json:"Delay,omitempty"`  // of QUEUED with a lease: whole seconds until the job is due
	Failed  bool  `json:"Failed,omitempty"` // of QUEUED with a lease: as of an Update
	// Reason and Detail are of DEAD, and of QUEUED with a lease: as of an Update.
	Reason string `json:"Reason,omitempty"`
	Detail string `json:"Detail,omitempty"`
	// the response to the message, of DELIVERED: as of an Update
	Response       *string `json:"Response,omitempty"`
	ResponseBase64 *string `json:"ResponseBase64,omitempty"`
	ResponseType   string  `json:"ResponseType,omitempty"`
}

// A MoveResult is the answer to INFLIGHT. The answer to another state has no body.
type MoveResult struct {
	Claimed  bool       `json:"Claimed"`            // the job is the caller's now; also in X-Broker-Claimed
	Lease    string     `json:"Lease,omitempty"`    // of a claimed job, as in X-Broker-Lease
	Attempt  int        `json:"Attempt,omitempty"`  // of a job that this request claimed, from 1
	Deadline *time.Time `json:"Deadline,omitempty"` // end of the lease, by the clock of the broker
	Detail   string     `json:"Detail,omitempty"`   // why the job is not the caller's: a sentence
}

// A ClaimRequest leases many jobs. Every member is optional, and so is the body. The query
// parameters with these names in lower case are an alternative.
type ClaimRequest struct {
	Limit int `json:"Limit,omitempty"` // of jobs, from 1; a larger one counts as the largest
	Size  int `json:"Size,omitempty"`  // another name of Limit
	// for the first job: a Go duration or whole seconds, as a text; the broker accepts a number too
	Wait    string `json:"Wait,omitempty"`
	Timeout int64  `json:"Timeout,omitempty"` // of the leases: whole seconds, from 1
}

// ClaimedJobs is the answer to a ClaimRequest.
type ClaimedJobs struct {
	Result []ClaimedJob `json:"Result"` // highest priority first, never null
	// Why is what keeps jobs from the worker where Result is empty: paused, limited or loading.
	// Absent: the consumer has none that is due.
	Why string `json:"Why,omitempty"`
}

// A ClaimedJob is a leased job.
type ClaimedJob struct {
	ID      string `json:"ID"`
	Lease   string `json:"Lease"`   // token of the lease
	Attempt int    `json:"Attempt"` // from 1
	// leases of the job that ended without a word before, and times that it was given back
	LeasesLost int         `json:"LeasesLost,omitempty"`
	GivenBack  int         `json:"GivenBack,omitempty"`
	Deadline   time.Time   `json:"Deadline"`         // end of the lease, by the clock of the broker
	Priority   int         `json:"Priority"`         // higher first
	Replay     string      `json:"Replay,omitempty"` // ID of the replay that repeats the job
	Message    PullMessage `json:"Message"`
}

// An UpdatesRequest moves many jobs of a pull consumer. A member of an entry that is null counts as absent.
type UpdatesRequest struct {
	Updates []Update `json:"Updates"` // each job once; never null
}

// An Update moves one job.
type Update struct {
	ID                 string `json:"ID"`
	Lease              string `json:"Lease,omitempty"`              // QUEUED and INFLIGHT need it
	NextState          string `json:"NextState"`                    // DELIVERED, DEAD, QUEUED or INFLIGHT
	IncrementalTimeout int64  `json:"IncrementalTimeout,omitempty"` // of INFLIGHT: as of a MoveRequest
	// Timeout is of INFLIGHT: how long the lease lasts from now, as the timeout of a claim; absent: as the consumer has it
	Timeout int64 `json:"Timeout,omitempty"`
	Delay   int64 `json:"Delay,omitempty"` // of QUEUED: whole seconds until the job is due
	// of QUEUED: the attempt failed and counts; without it, giving back is no attempt
	Failed bool `json:"Failed,omitempty"`
	// of DEAD and QUEUED: why, in few words that are the same for the same cause; cut at 255 bytes
	Reason string `json:"Reason,omitempty"`
	Detail string `json:"Detail,omitempty"` // of DEAD and QUEUED: what else there is to say; cut at 1 KiB
	// of DELIVERED: the response of a consumer with responses on, cut at its responseMaxBytes
	Response       *string `json:"Response,omitempty"`
	ResponseBase64 *string `json:"ResponseBase64,omitempty"` // instead of Response
	ResponseType   string  `json:"ResponseType,omitempty"`   // content type of the response; absent: it has none
}

// UpdateResults is the answer to an UpdatesRequest, in its order.
type UpdateResults struct {
	Result []UpdateResult `json:"Result"` // never null
}

// An UpdateResult is the answer to an Update.
type UpdateResult struct {
	ID     string `json:"ID"`             // as in the request
	Status int    `json:"Status"`         // 202, or that of a Problem
	Code   string `json:"code,omitempty"` // of the Problem
}
