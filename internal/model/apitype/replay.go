package apitype

// A ReplayRequest delivers messages of the past to a consumer once more.
type ReplayRequest struct {
	From   string `json:"From"`             // RFC 3339: messages from then on
	To     string `json:"To,omitempty"`     // RFC 3339: and up to then; absent: up to now
	Only   string `json:"Only,omitempty"`   // "delivered", "dead" or "all"; absent: delivered
	Filter string `json:"Filter,omitempty"` // an expression as in a consumer's filter; absent: all messages
	Rate   string `json:"Rate,omitempty"`   // as RateLimit of a Policy: "100/1s"; absent: that of the consumer alone
	DryRun bool   `json:"DryRun,omitempty"` // count, and replay nothing
}

// A ReplayEstimate is the answer to a ReplayRequest with DryRun.
type ReplayEstimate struct {
	Matched          int64   `json:"Matched"`             // messages
	Bytes            int64   `json:"Bytes"`               // of their payloads
	EstimatedSeconds float64 `json:"EstimatedSeconds"`    // at the rates, or at 500 messages a second
	Estimated        bool    `json:"Estimated,omitempty"` // the counts are extrapolated from a part
	// DeadLeftOut are dead letters of the time, which only "dead" or "all" repeat.
	DeadLeftOut   int64 `json:"DeadLeftOut,omitempty"`
	RemovedBefore *Time `json:"RemovedBefore,omitempty"`
}

// A Replay is messages of the past that a consumer gets once more.
type Replay struct {
	ID     string `json:"ID"`
	State  string `json:"State"` // "RUNNING", "PAUSED", "DONE" or "CANCELLED"
	From   Time   `json:"From"`
	To     Time   `json:"To"`
	Only   string `json:"Only"`
	Filter string `json:"Filter,omitempty"`
	Rate   string `json:"Rate,omitempty"`
	// messages, counted at the begin; of one that is done, those that it repeated
	Matched        int64 `json:"Matched"`
	Bytes          int64 `json:"Bytes"`                 // of their payloads
	Estimated      bool  `json:"Estimated,omitempty"`   // Matched and Bytes are extrapolated from a part
	DeadLeftOut    int64 `json:"DeadLeftOut,omitempty"` // in the answer to a ReplayRequest: as of a ReplayEstimate
	Replayed       int64 `json:"Replayed"`              // messages of which a copy was sent
	Delivered      int64 `json:"Delivered"`
	Dead           int64 `json:"Dead"`
	StartedAt      Time  `json:"StartedAt"`
	StateChangedAt Time  `json:"StateChangedAt"`
	// RemovedBefore: retention may have removed messages before that time; absent: none.
	RemovedBefore *Time `json:"RemovedBefore,omitempty"`
}

// A ReplayList is a page of the replays of a consumer, the newest first.
type ReplayList struct {
	Result []Replay `json:"Result"` // never null
	Pages  Pages    `json:"Pages"`
}

// A ReplayedJob is what a replay did with a job.
type ReplayedJob struct {
	Replay         string    `json:"Replay"` // its ID
	Status         string    `json:"Status"` // as of a Job
	StatusAt       Time      `json:"StatusAt"`
	Attempts       int       `json:"Attempts"`
	LeasesLost     int       `json:"LeasesLost"` // as of a Job
	GivenBack      int       `json:"GivenBack"`
	AttemptHistory []Attempt `json:"AttemptHistory"` // never null
}
