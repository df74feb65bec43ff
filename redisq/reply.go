package redisq

import (
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A reader reads the flat reply of a script. The first item that breaks the contract sets
// err; later reads return zeros.
type reader struct {
	items []any
	err   error
}

// left returns the number of unread items.
func (r *reader) left() int {
	if r.err != nil {
		return 0
	}
	return len(r.items)
}

func (r *reader) next() any {
	if r.err != nil {
		return nil
	}
	if len(r.items) == 0 {
		r.err = fmt.Errorf("redisq: script reply is too short")
		return nil
	}
	v := r.items[0]
	r.items = r.items[1:]
	return v
}

func (r *reader) int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("redisq: script reply %q is no number", v)
		}
		return n
	default:
		if r.err == nil {
			r.err = fmt.Errorf("redisq: script reply is a %T, not a number", v)
		}
		return 0
	}
}

func (r *reader) text() string {
	v := r.next()
	s, ok := v.(string)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("redisq: script reply is a %T, not a string", v)
	}
	return s
}

func (r *reader) id() ident.ID {
	s := r.text()
	if len(s) != ident.Size && r.err == nil {
		r.err = fmt.Errorf("redisq: script reply has an ID of %d bytes", len(s))
	}
	var id ident.ID
	copy(id[:], s)
	return id
}

func (r *reader) millis() time.Duration { return time.Duration(r.int()) * time.Millisecond }

// score reads a score; "" is 0.
func (r *reader) score() int64 {
	if r.left() > 0 && r.items[0] == "" {
		r.next()
		return 0
	}
	return r.int()
}

func (r *reader) meta() meta {
	m, err := parseMeta(r.text())
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("redisq: %w", err)
	}
	return m
}

// standing reads state, score and meta.
func (r *reader) standing() Standing {
	state, score, m := State(r.int()), r.score(), r.meta()
	s := Standing{State: state}
	if state == Missing {
		return s
	}
	s.Priority, s.Attempts, s.Flags = m.priority, m.attempts, m.flags
	switch state {
	case Ready:
		s.Priority = priorityOf(score)
	case Leased:
		s.Token, s.Worker, s.At = m.token, m.worker, time.UnixMilli(score).UTC()
	case Delayed:
		s.At = time.UnixMilli(score).UTC()
	}
	return s
}
