package pull

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/problem"
)

// MaxIncrementalTimeout bounds IncrementalTimeout, in seconds: a week.
const MaxIncrementalTimeout = 7 * 24 * 3600

// A transition is the body of a job POST.
type transition struct {
	next  string // INFLIGHT, DELIVERED, DEAD or QUEUED
	extra time.Duration
}

// parseTransition reads {"NextState":..., "IncrementalTimeout":...}. The body is exactly one JSON
// object. Other members are ignored. An IncrementalTimeout of 0 counts as absent.
func parseTransition(body []byte) (transition, error) {
	switch string(body) { // the bodies that nearly every worker sends
	case `{"NextState":"INFLIGHT"}`:
		return transition{next: "INFLIGHT"}, nil
	case `{"NextState":"DELIVERED"}`:
		return transition{next: "DELIVERED"}, nil
	}
	invalid := problem.New(400, "invalid_body", `The body must be a JSON object like {"NextState":"INFLIGHT","IncrementalTimeout":10}.`)
	var in struct {
		NextState          *string
		IncrementalTimeout json.RawMessage
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&in); err != nil {
		return transition{}, invalid
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return transition{}, invalid
	}
	var t transition
	if in.NextState != nil {
		t.next = *in.NextState
	}
	switch t.next {
	case "INFLIGHT", "DELIVERED", "DEAD", "QUEUED":
	default:
		return transition{}, problem.New(400, "invalid_next_state", "NextState must be INFLIGHT, DELIVERED or DEAD.")
	}
	if len(in.IncrementalTimeout) > 0 && string(in.IncrementalTimeout) != "null" {
		seconds, err := strconv.ParseInt(string(in.IncrementalTimeout), 10, 64)
		if err != nil || seconds < 0 || seconds > MaxIncrementalTimeout {
			return transition{}, errTimeout
		}
		t.extra = time.Duration(seconds) * time.Second
	}
	if t.extra != 0 && t.next != "INFLIGHT" {
		return transition{}, errTimeout
	}
	return t, nil
}
