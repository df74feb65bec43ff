package fleet

import (
	"encoding/json"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Note is what a broker says of itself.
type Note struct {
	No      int    `json:"no"` // of its node
	Name    string `json:"name"`
	AtMs    int64  `json:"at"`    // Unix ms, of the clock of the store
	BeganMs int64  `json:"began"` // the same
	apitype.Version
	Load
	Journal Journal `json:"journal"`
}

// A Load is how busy a broker is. Rates are those since the note before.
type Load struct {
	Accepted   float64    `json:"accepted"`  // messages a second
	Delivered  float64    `json:"delivered"` // jobs a second
	InFlight   int        `json:"inflight"`  // push requests
	Answers    [3]float64 `json:"answers"`   // to publishes a second: 201, 202, 503
	FanOut     int        `json:"fanout"`    // stored messages that wait for Redis
	Processors float64    `json:"cpu"`       // that its process keeps busy; 0 where the system does not say
	Memory     int64      `json:"memory"`    // bytes that its process has of the system, as Go counts them
}

// A Journal is what the journals of a broker hold.
type Journal struct {
	Waiting int64 `json:"waiting"` // messages
	Held    int64 `json:"held"`    // messages of paused channels, or that the store refuses
	Bytes   int64 `json:"bytes"`
	Oldest  int64 `json:"oldest"` // ms that the oldest message has waited
	Damaged int   `json:"damaged"`
}

// At is when the note was written.
func (n *Note) At() time.Time { return time.UnixMilli(n.AtMs).UTC() }

// Began is when the broker began.
func (n *Note) Began() time.Time { return time.UnixMilli(n.BeganMs).UTC() }

// mostNote bounds the text of a note, bytes. A name is that of a machine.
const mostNote = 4 << 10

// encode is the text of a note.
func (n *Note) encode() string {
	text, err := json.Marshal(n)
	if err != nil { // it has texts and numbers
		return "{}"
	}
	return string(text)
}

// decode reads the text of a note, which another release may have written.
func decode(text string) (n Note, ok bool) {
	if len(text) > mostNote || json.Unmarshal([]byte(text), &n) != nil || n.AtMs <= 0 {
		return Note{}, false
	}
	return n, true
}
