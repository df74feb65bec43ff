package apitype

// A DeadGroups is the dead letters of a consumer by cause, the largest groups first.
type DeadGroups struct {
	Result []DeadGroup `json:"Result"` // never null; all of them: their number is bounded
	Pages  Pages       `json:"Pages"`
}

// A DeadGroup is the dead letters of a consumer that have one cause.
type DeadGroup struct {
	Fingerprint string `json:"Fingerprint"` // 16 hexadecimal digits; "other": those without one of their own
	Status      int    `json:"Status"`      // HTTP status of the last one, 0 when there was none
	Sample      string `json:"Sample"`      // error of the last one
	Count       int64  `json:"Count"`
	FirstAt     Time   `json:"FirstAt"` // of the first death since the group was empty
	LastAt      Time   `json:"LastAt"`
	SampleJob   string `json:"SampleJob"` // ID of a job in the group
}

// A DeadSelection says which dead letters of a consumer are meant. What is absent means all.
type DeadSelection struct {
	Fingerprint string   `json:"Fingerprint,omitempty"` // of a group
	Reason      string   `json:"Reason,omitempty"`      // ReasonCodes, with commas between
	From        string   `json:"From,omitempty"`        // RFC 3339: died from then on
	To          string   `json:"To,omitempty"`          // RFC 3339: and up to then
	Limit       int64    `json:"Limit,omitempty"`       // the first ones of them, by message
	Jobs        []string `json:"Jobs,omitempty"`        // IDs: of these jobs
}

// A RedriveRequest opens selected dead letters of a consumer again.
type RedriveRequest struct {
	DeadSelection
	// Target is another consumer of the channel, which gets the letters as a replay; they stay. Absent: they are
	// opened again.
	Target string `json:"Target,omitempty"`
	Rate   string `json:"Rate,omitempty"`   // as RateLimit of a Policy: "100/1s"; absent: as fast as it goes
	Canary bool   `json:"Canary,omitempty"` // 1, then 10, then 100, then all; stops when they fail again
	DryRun bool   `json:"DryRun,omitempty"` // count, and redrive nothing
}

// A RedriveEstimate is the answer to a RedriveRequest with DryRun.
type RedriveEstimate struct {
	Matched     int64 `json:"Matched"`
	Approximate bool  `json:"Approximate,omitempty"` // there are more: counting stopped
}

// A DeletedLetters is the answer to a deletion of selected dead letters.
type DeletedLetters struct {
	Deleted int64 `json:"Deleted"`
}

// A Redrive is selected dead letters on their way to be jobs again.
type Redrive struct {
	ID          string `json:"ID"`
	State       string `json:"State"`                 // "RUNNING", "PAUSED", "STOPPED", "DONE" or "CANCELLED"
	Stage       string `json:"Stage"`                 // of a canary: "1", "10", "100", then "all"
	Matched     int64  `json:"Matched"`               // counted at the begin; of one that is done, those that it opened
	Approximate bool   `json:"Approximate,omitempty"` // Matched: there are more
	Redriven    int64  `json:"Redriven"`              // jobs that it has opened again, or that were sent to Target
	Delivered   int64  `json:"Delivered"`             // of these
	Dead        int64  `json:"Dead"`                  // of these: dead again
	Reason      string `json:"Reason"`                // why it stopped, "" unless it did

	Selection DeadSelection `json:"Selection"` // as it was asked for, without Jobs
	Rate      string        `json:"Rate,omitempty"`
	Canary    bool          `json:"Canary,omitempty"`
	Target    string        `json:"Target,omitempty"` // the other consumer; "" once it is deleted
	Replay    string        `json:"Replay,omitempty"` // its replay, of that consumer

	StartedAt      Time `json:"StartedAt"`
	StateChangedAt Time `json:"StateChangedAt"`
}

// A RedriveList is a page of the redrives of a consumer, the newest first.
type RedriveList struct {
	Result []Redrive `json:"Result"` // never null
	Pages  Pages     `json:"Pages"`
}
