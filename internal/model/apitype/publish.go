package apitype

// A BatchLine is one line of a batch publish. It has either Payload or PayloadBase64. Any other
// member is optional: when it is absent, the headers of the request set the value.
type BatchLine struct {
	MessageID       string `json:"MessageID,omitempty"` // the broker makes one when it is absent or empty
	Priority        *int   `json:"Priority,omitempty"`  // higher first
	TTL             string `json:"TTL,omitempty"`       // time to live: a Go duration
	ContentType     string `json:"ContentType,omitempty"`
	ContentEncoding string `json:"ContentEncoding,omitempty"` // codings of the payload, such as gzip
	OrderingKey     string `json:"OrderingKey,omitempty"`     // empty: none
	Task            string `json:"Task,omitempty"`            // that workers ask for; empty: none
	ScheduledFor    string `json:"ScheduledFor,omitempty"`    // RFC 3339
	// instead of ScheduledFor: 90s, 1h30m, 2d, or whole seconds
	Delay         Text              `json:"Delay,omitempty"`
	Recurrence    string            `json:"Recurrence,omitempty"`
	Consumers     []string          `json:"Consumers,omitempty"` // IDs of those whom it is for; absent: all
	Headers       map[string]string `json:"Headers,omitempty"`   // metadata headers; reserved names are refused
	Payload       *string           `json:"Payload,omitempty"`
	PayloadBase64 []byte            `json:"PayloadBase64,omitempty"` // standard base64 with padding
}

// A BatchResult is one line of the answer to a batch publish. The lines are in the order of the
// request.
type BatchResult struct {
	Status int `json:"Status"` // 201: committed; 202: in the journal; else why not, as for a broadcast
	// of a stored message, in a channel with another ack than durable; of 202: journal
	Ack    string `json:"Ack,omitempty"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Taken is the number of lines answered above. Only a line that ends the batch has it: of the
	// code answers_unread, or of a sender that would not be admitted any more.
	Taken     *int64 `json:"Taken,omitempty"`
	MessageID string `json:"MessageID,omitempty"` // of 201, and of duplicate_message_id
	Location  string `json:"Location,omitempty"`  // link to that message; of 202, to the receipt
}
