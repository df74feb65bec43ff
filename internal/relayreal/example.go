//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

// An example is one webhook body.
type example struct {
	id       string // our message ID: two examples may have the same body
	event    string
	delivery string // what X-GitHub-Delivery would hold
	body     []byte // exactly as the file spells it, blanks and line breaks included
}

// parseExamples reads an index.json: a list of events with examples each.
func parseExamples(text []byte) ([]example, error) {
	var events []struct {
		Name     string            `json:"name"`
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(text, &events); err != nil {
		return nil, fmt.Errorf("read the examples: %w", err)
	}
	var all []example
	for _, e := range events {
		for i, body := range e.Examples {
			n := len(all) + 1
			all = append(all, example{
				id:       fmt.Sprintf("%s.%d", e.Name, i),
				event:    e.Name,
				delivery: fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
				body:     body,
			})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the file holds no examples")
	}
	return all, nil
}
