package schedule

import (
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// longestSuffix is the longest suffix that occurrenceKey appends.
const longestSuffix = 1 + 10

// MaxID is the longest message ID of a recurring schedule, bytes: each of its messages has that ID
// with a suffix.
const MaxID = 255 - longestSuffix

// message returns the message that a schedule waits for.
func message(s *durable.Scheduled, nowMs int64) *durable.Message {
	m := s.Message
	o := &durable.Occurrence{Of: s.ID, No: s.No, NextNo: s.No + 1, ChangedMs: s.ChangedMs}
	m.Occurrence = o
	switch {
	case m.Idempotent():
		m.Key = "" // the key of the request is not an ID of the message
	case s.Recurrence == "":
		o.Reserved = true
	case m.Key != "":
		m.Key = occurrenceKey(m.Key, s.SentBefore+s.No)
	}
	if s.Recurrence == "" {
		return &m
	}
	r, err := Parse(s.Recurrence)
	if err != nil { // sendPage leaves it out
		return &m
	}
	if no, next, ok := r.Next(s.No, time.UnixMilli(s.DueMs).UTC(), time.UnixMilli(nowMs).UTC()); ok {
		o.NextNo, o.NextMs = no, next.UnixMilli()
	}
	return &m
}

// occurrenceKey is the Key of message no of a schedule with a Key, from 0.
func occurrenceKey(key string, no int) string { return key + "." + strconv.Itoa(no+1) }
