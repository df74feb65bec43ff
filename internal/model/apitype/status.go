package apitype

// A StatusNotice is the payload of a message on the channel ~status, and of a request to the reply
// URL of a producer: what became of messages of one producer, in order of time.
type StatusNotice struct {
	ProducerID string        `json:"ProducerID"`
	Events     []StatusEvent `json:"Events"` // 1 to 500
}

// A StatusEvent is one thing that happened to a job.
type StatusEvent struct {
	ChannelID  string `json:"ChannelID"`
	MessageID  string `json:"MessageID"` // of the producer, else of the broker
	ConsumerID string `json:"ConsumerID"`
	JobID      string `json:"JobID"`
	Event      string `json:"Event"` // "DELIVERED", "FAILED" (an attempt) or "DEAD"
	At         Time   `json:"At"`
	Attempt    int    `json:"Attempt"`    // attempts so far, this one included
	Status     int    `json:"Status"`     // HTTP status of the consumer; 0: there was none
	ReasonCode string `json:"ReasonCode"` // of "DEAD": as in Job; else ""
}
