package apitype

// Retried is the answer to a retry of the delayed jobs of a consumer.
type Retried struct {
	Retried int `json:"Retried"` // jobs that were delayed and are due now
}

// A ConsumerTest is what became of a test message.
type ConsumerTest struct {
	Status       int    `json:"Status"`     // of the consumer's answer; 0: none came
	DurationMs   int64  `json:"DurationMs"` // of the request
	Error        string `json:"Error"`      // why a delivery would have failed; "": it would not
	Body         string `json:"Body"`       // first KiB of the answer; base64 when BodyEncoding is set
	BodyEncoding string `json:"BodyEncoding,omitempty"`
}

// A PortalRequest asks for a link to the pages of a consumer.
type PortalRequest struct {
	TTL string `json:"TTL,omitempty"` // how long the link lasts, a duration from 1h to 24h; absent: 4h
}

// A PortalLink is a link to the pages of a consumer in the dashboard. Whoever has it needs no token.
type PortalLink struct {
	URL       string `json:"URL"`
	ExpiresAt Time   `json:"ExpiresAt"`
}

// Purged is the answer to a purge of a consumer.
type Purged struct {
	Purged int  `json:"Purged"`         // jobs that this request ended
	More   bool `json:"More,omitempty"` // the request took as long as it may: send it again for the rest
}

// A ConsumerList is a page of the consumers of all channels.
type ConsumerList struct {
	Result []ListedConsumer `json:"Result"` // never null
	Pages  Pages            `json:"Pages"`
}

// A ListedConsumer is a consumer in the list of all. OldestQueuedAt is that of the jobs that wait.
type ListedConsumer struct {
	ChannelID   string `json:"ChannelID"`
	ConsumerURL string `json:"ConsumerURL"`
	Consumer
	// Queued is what Redis knows, and more jobs may wait in the store.
	Approximate bool `json:"Approximate,omitempty"`
}

// A JobList is a page of the jobs of a consumer.
type JobList struct {
	Result []Job `json:"Result"` // never null
	Pages  Pages `json:"Pages"`
}

// A MessageList is a page of messages. Searched is there where each message was looked at.
type MessageList struct {
	Result   []string  `json:"Result"` // links to the messages, never null
	Pages    Pages     `json:"Pages"`
	Links    *struct{} `json:"Links"`              // as of a List
	Searched *int      `json:"Searched,omitempty"` // messages that this page looked at
}
