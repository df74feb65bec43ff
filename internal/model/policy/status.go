package policy

import (
	"errors"
	"strings"
)

// A StatusEvents is the set of events that a producer wants to hear of. The zero value is none.
type StatusEvents uint8

// The events, which are bits of the set; those of durable.StatusKind.
const (
	StatusDelivered StatusEvents = 1 << iota
	StatusFailed
	StatusDead
	statusAll = StatusDelivered | StatusFailed | StatusDead
)

var (
	statusNames     = [...]string{"delivered", "failed", "dead"}
	errStatusEvents = errors.New("must be off, all, or some of delivered, failed and dead, separated by commas")
)

func parseStatusEvents(text string) (StatusEvents, error) {
	switch text {
	case "", "off":
		return 0, nil
	case "all":
		return statusAll, nil
	}
	var set StatusEvents
parts:
	for part := range strings.SplitSeq(text, ",") {
		for i, name := range statusNames {
			if strings.TrimSpace(part) == name {
				set |= 1 << i
				continue parts
			}
		}
		return 0, errStatusEvents
	}
	return set, nil
}

// String is the inverse of parseStatusEvents.
func (s StatusEvents) String() string {
	switch s {
	case 0:
		return "" // an answer leaves it out
	case statusAll:
		return "all"
	}
	var names []string
	for i, name := range statusNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
