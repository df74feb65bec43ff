package apitype

// A Why is the answer to why nothing moves: of a consumer, a message, a job or a scheduled message.
type Why struct {
	Summary string      `json:"Summary"` // one sentence for people
	Reasons []WhyReason `json:"Reasons"` // the most important first, never null; empty: nothing is held back
	At      Time        `json:"At"`      // when that was so
}

// A WhyReason is one thing that keeps jobs back, or how they ended.
type WhyReason struct {
	Code       string `json:"Code"` // package why lists them
	ConsumerID string `json:"ConsumerID"`
	Since      *Time  `json:"Since"` // null: not known
	Until      *Time  `json:"Until"` // when it ends by itself; null: it does not, or that is not known
	// what or who holds: the job that blocks, the answer, the field of the policy, the worker; "" where nothing is named
	By   string `json:"By"`
	Jobs int    `json:"Jobs"` // jobs that it keeps back; of a message or a job 1
	// there may be more or fewer than Jobs
	Approximate bool       `json:"Approximate,omitempty"`
	Detail      string     `json:"Detail"`            // what is known of it
	Action      string     `json:"Action"`            // the request or the field that changes it
	Because     *WhyReason `json:"Because,omitempty"` // of a job that waits for another one: the reason of that one
}
