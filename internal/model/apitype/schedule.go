package apitype

// The states of a scheduled message. In the filter of the list they are also 101 and 102.
const (
	Scheduled = "SCHEDULED" // has a message to send
	// Dispatched: its last message is sent.
)

// A ScheduledMessage is a message that is sent at its time. The names of its members are those of
// the older implementation.
type ScheduledMessage struct {
	ID               string `json:"id"`        // of the broker
	MessageID        string `json:"messageId"` // of the producer, else of the broker
	Payload          string `json:"payload"`   // base64 when payloadEncoding is set
	PayloadEncoding  string `json:"payloadEncoding,omitempty"`
	ContentType      string `json:"contentType"`
	ContentEncoding  string `json:"contentEncoding,omitempty"` // codings of the payload
	Priority         int    `json:"priority"`                  // higher first
	ProducedBy       string `json:"producedBy"`                // ID of the producer
	DispatchSchedule Time   `json:"dispatchSchedule"`          // of the next message, or of the last one
	// when the last message so far was sent; null: none was
	DispatchedAt *Time  `json:"dispatchedAt"`
	Status       string `json:"status"`               // Scheduled or Dispatched
	Recurrence   string `json:"recurrence,omitempty"` // as it was published
	// of a recurrence: number of the message at dispatchSchedule, from 1
	Occurrence int               `json:"occurrence,omitempty"`
	Reason     string            `json:"reason,omitempty"`     // why the next message of a recurrence waits longer
	MessageURL string            `json:"messageURL,omitempty"` // of the last message so far
	Headers    map[string]string `json:"headers"`              // metadata headers, never null
}

// A ScheduledList is a page of scheduled messages. It has the members of a List, and the same under
// the names of the older implementation, whose clients read those.
type ScheduledList struct {
	Result    []string `json:"Result"` // links to them, never null
	Pages     Pages    `json:"Pages"`
	OldResult []string `json:"result"`
	OldPages  Pages    `json:"pages"`
}

// MessageCounts are the numbers of messages of a channel.
type MessageCounts struct {
	Counts StatusCounts `json:"counts"`
	Next   *Time        `json:"next_scheduled_message_at,omitempty"` // when the next scheduled message is due
}

// StatusCounts are the numbers for each status.
type StatusCounts struct {
	Dispatched          StatusCount `json:"DISPATCHED"`
	ScheduledWaiting    StatusCount `json:"SCHEDULED_SCHEDULED"`
	ScheduledDispatched StatusCount `json:"SCHEDULED_DISPATCHED"`
}

// A StatusCount is the number for one status.
type StatusCount struct {
	Count   int        `json:"Count"`
	AtLeast bool       `json:"AtLeast,omitempty"` // there may be more than Count
	Links   CountLinks `json:"Links"`
}

// CountLinks leads to what was counted.
type CountLinks struct {
	Messages string `json:"messages"`
}
