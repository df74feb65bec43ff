package apitype

// Responses are the responses of the consumers to a message.
type Responses struct {
	Result []Response `json:"Result"` // of each consumer that has responses on, never null
	// Complete: every exchange is at its last state.
	Complete bool   `json:"Complete"`
	Pages    *Pages `json:"Pages,omitempty"` // absent: there are no more entries
}

// A Response is how far the response of one consumer is.
type Response struct {
	ConsumerID string `json:"ConsumerID"`
	// ARRIVED, DELIVERED_TO_RECEIVER, RESPONSE_RECEIVED_FROM_RECEIVER, RESPONSE_DELIVERED_TO_SENDER or FAILED
	State        string            `json:"State"`
	Status       int               `json:"Status"`       // of the consumer's answer; 0: none
	Headers      map[string]string `json:"Headers"`      // that are kept, never null
	Body         string            `json:"Body"`         // as it came, or its base64
	BodyEncoding string            `json:"BodyEncoding"` // "", or "base64" of a body that is not UTF-8
	Truncated    bool              `json:"Truncated"`    // the body was longer than responseMaxBytes
	Attempt      int               `json:"Attempt"`
	ArrivedAt    Time              `json:"ArrivedAt"`
	DeliveredAt  *Time             `json:"DeliveredAt"` // null: not yet
	ReceivedAt   *Time             `json:"ReceivedAt"`  // null: not yet
	EndedAt      *Time             `json:"EndedAt"`     // of the last state; null: not yet
	Reason       string            `json:"Reason"`      // of FAILED, or why there is no body any more
}
