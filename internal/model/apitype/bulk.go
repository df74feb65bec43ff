package apitype

import "encoding/json"

// The states of a bulk.
const (
	BulkFetching  = "FETCHING"  // its file is fetched
	BulkRunning   = "RUNNING"   // its rows are expanded into messages
	BulkPaused    = "PAUSED"    // nothing is fetched or expanded until it is resumed
	BulkDone      = "DONE"      // each row is expanded
	BulkCancelled = "CANCELLED" // by a request; what was published stays
	BulkFailed    = "FAILED"    // see Reason; what was published stays
)

// A BulkRequest is the body of a bulk whose rows are in a file elsewhere, or, without a FileURL, the
// part options of a form whose part file has the rows.
type BulkRequest struct {
	FileURL  string        `json:"FileURL,omitempty"`  // fetched after the answer; redirects are not followed
	Format   string        `json:"Format"`             // csv or ndjson; of a form by default that of its file
	Template *BulkTemplate `json:"Template,omitempty"` // absent: columns and members are those of batch lines
	Rate     string        `json:"Rate,omitempty"`     // most messages, such as 2000/1s
}

// A BulkTemplate makes a message of a row. In each text {{column}} is the cell, verbatim, and
// {{json column}} the cell as a JSON string.
type BulkTemplate struct {
	Payload         string            `json:"Payload,omitempty"`
	PayloadBase64   string            `json:"PayloadBase64,omitempty"` // instead of Payload
	ContentType     string            `json:"ContentType,omitempty"`
	ContentEncoding string            `json:"ContentEncoding,omitempty"`
	Headers         map[string]string `json:"Headers,omitempty"`
	Priority        Text              `json:"Priority,omitempty"`
	MessageID       string            `json:"MessageID,omitempty"`
	TTL             string            `json:"TTL,omitempty"`
	OrderingKey     string            `json:"OrderingKey,omitempty"`
	Task            string            `json:"Task,omitempty"`
	ScheduledFor    string            `json:"ScheduledFor,omitempty"`
	Delay           Text              `json:"Delay,omitempty"`
	Recurrence      string            `json:"Recurrence,omitempty"`
}

// A Text is a string in JSON, or a number that stands for its digits.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	var n json.Number
	if len(b) > 0 && b[0] != '"' && json.Unmarshal(b, &n) == nil {
		*t = Text(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// A Bulk is many messages that came as one body or file.
type Bulk struct {
	ID           string        `json:"ID"`
	ProducedBy   string        `json:"ProducedBy"` // ID of the producer
	State        string        `json:"State"`      // one of the states above
	Reason       string        `json:"Reason"`     // why it is FAILED, or why the last fetch failed
	Format       string        `json:"Format"`
	FileURL      string        `json:"FileURL,omitempty"`  // without its query
	Rate         string        `json:"Rate,omitempty"`     // as requested
	Template     *BulkTemplate `json:"Template,omitempty"` // as requested
	CreatedAt    Time          `json:"CreatedAt"`
	ChangedAt    Time          `json:"ChangedAt"`    // of the last step
	Bytes        int64         `json:"Bytes"`        // of the body
	Total        int64         `json:"Total"`        // rows
	Published    int64         `json:"Published"`    // rows that became a message, or a scheduled one
	Rejected     int64         `json:"Rejected"`     // rows that became none: see BadRows
	Duplicates   int64         `json:"Duplicates"`   // rows whose very message was stored before
	Delivered    int64         `json:"Delivered"`    // jobs of its messages
	Open         int64         `json:"Open"`         // jobs that are not over
	Dead         int64         `json:"Dead"`         // jobs that are dead letters
	Counting     bool          `json:"Counting"`     // not all jobs are counted: the next answer knows more
	PerSecond    float64       `json:"PerSecond"`    // rows expanded a second, lately
	EstimatedEnd *Time         `json:"EstimatedEnd"` // of the expansion; null: unknown, or it has ended
	BadRows      []BadRow      `json:"BadRows"`      // the first 100, never null
	BadRowsURL   string        `json:"BadRowsURL"`   // link to all of them
}

// A BadRow is a row of a bulk that became no message.
type BadRow struct {
	Row    int64  `json:"Row"` // from 1; the header line of CSV and blank lines do not count
	Reason string `json:"Reason"`
}

// BadRows are all bad rows of a bulk.
type BadRows struct {
	Result []BadRow `json:"Result"` // never null
}
