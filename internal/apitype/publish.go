package apitype

// A BatchLine is one line of a batch publish. It has either Payload or PayloadBase64. Any other
// member is optional: when it is absent, the headers of the request set the value.
type BatchLine struct {
	MessageID     string            `json:"MessageID,omitempty"` // the broker makes one when it is absent or empty
	Priority      *int              `json:"Priority,omitempty"`  // higher first
	ContentType   string            `json:"ContentType,omitempty"`
	Headers       map[string]string `json:"Headers,omitempty"` // metadata headers; reserved names are refused
	Payload       *string           `json:"Payload,omitempty"`
	PayloadBase64 []byte            `json:"PayloadBase64,omitempty"` // standard base64 with padding
}

// A BatchResult is one line of the answer to a batch publish. The lines are in the order of the
// request.
type BatchResult struct {
	Status int    `json:"Status"` // 201: committed; else why not, as for a broadcast
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Taken is the number of lines answered above. Only the code answers_unread, which ends a
	// batch, has it.
	Taken     *int64 `json:"Taken,omitempty"`
	MessageID string `json:"MessageID,omitempty"` // of 201, and of duplicate_message_id
	Location  string `json:"Location,omitempty"`  // link to that message
}
