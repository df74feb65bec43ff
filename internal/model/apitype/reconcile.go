package apitype

// A Reconciliation is the books of the consumers of a channel for the messages of a time.
type Reconciliation struct {
	Result []Books `json:"Result"` // in the order in which the consumers were created, never null
	From   Time    `json:"From"`   // messages from then on
	To     Time    `json:"To"`     // and before then
}

// Books are what became of the messages that concern a consumer. Accepted is the sum of the other
// numbers, or Difference is what is missing.
type Books struct {
	ConsumerID string `json:"ConsumerID"`
	Accepted   int64  `json:"Accepted"`
	Delivered  int64  `json:"Delivered"`
	Queued     int64  `json:"Queued"`
	InFlight   int64  `json:"InFlight"`
	Dead       int64  `json:"Dead"`     // dead letters, without Expired
	Expired    int64  `json:"Expired"`  // dead letters of jobs that were too old
	Filtered   int64  `json:"Filtered"` // left out by the filter of the consumer
	Balanced   bool   `json:"Balanced"`
	Difference int64  `json:"Difference,omitempty"` // Accepted without the sum of the others
}
