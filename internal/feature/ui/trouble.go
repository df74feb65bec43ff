package ui

import (
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// lateAfter is how long the oldest job of a consumer waits until a person should look, where the consumer has no
// objective of its own (maxAge).
const lateAfter = time.Minute

// A Need says how much a consumer needs a person.
type Need int

// The needs.
const (
	Fine    Need = iota
	Letters      // it has dead letters
	Late         // its oldest job waits for too long
	Stopped      // it gets nothing until a person says so
)

// A Standing is what decides how much a consumer needs a person.
type Standing struct {
	Stopped bool          // it is DEAD or GONE
	Oldest  time.Time     // the oldest job that waits; zero: none does
	MaxAge  time.Duration // its objective; 0: none
	Dead    int           // dead letters
}

// Need returns how much the consumer needs a person.
func (s Standing) Need(now time.Time) Need {
	limit := s.MaxAge
	if limit <= 0 {
		limit = lateAfter
	}
	switch {
	case s.Stopped:
		return Stopped
	case !s.Oldest.IsZero() && now.Sub(s.Oldest) > limit:
		return Late
	case s.Dead > 0:
		return Letters
	}
	return Fine
}

// A Mark is a state with its word: "" is good, else it is the class of its sign.
type Mark struct {
	Class, Word string
	Sub         string // a quiet line under it
}

// markOf says in words how a consumer is doing, the reason first.
func markOf(c *apitype.ListedConsumer, now time.Time) Mark {
	maxAge, _ := time.ParseDuration(c.Policy.MaxAge)
	s := Standing{MaxAge: maxAge}
	if c.OldestQueuedAt != nil {
		s.Oldest = c.OldestQueuedAt.Time
	}
	late := s.Need(now) == Late
	loud := func() string {
		if late {
			return "warn"
		}
		return "off"
	}
	switch {
	case c.State == "GONE":
		return Mark{"bad", "It answered 410, and gets nothing until it is resumed", cut(c.StateReason, mostText)}
	case c.State == "DEAD" && c.HeldBy == "probing":
		return Mark{"warn", "It was revived, and one probe decides", cut(c.StateReason, mostText)}
	case c.State == "DEAD":
		return Mark{"bad", "Too many attempts failed, so it gets nothing until it is revived", cut(c.StateReason, mostText)}
	case c.State == "PAUSED":
		return Mark{loud(), "It is paused since " + clock(c.StateChangedAt.Time, now), cut(c.StateReason, mostText)}
	case c.HeldUntil != nil:
		return Mark{loud(), "It asked for no jobs until " + clock(c.HeldUntil.Time, now), ""}
	}
	if m, ok := failing(c, late, now); ok {
		return m
	}
	if c.Type == "pull" && late && (c.LastClaimAt == nil || now.Sub(c.LastClaimAt.Time) > lateAfter) {
		if c.LastClaimAt == nil {
			return Mark{"warn", "No worker has claimed", ""}
		}
		return Mark{"warn", "No worker has claimed for " + age(now.Sub(c.LastClaimAt.Time)), ""}
	}
	switch {
	case late:
		return Mark{"warn", "Its oldest job has waited for " + age(now.Sub(s.Oldest)), ""}
	case c.DeadLetters != nil && *c.DeadLetters > 0:
		return Mark{"warn", plural(*c.DeadLetters, "dead letter"), ""}
	case c.Queued == nil:
		return Mark{"off", "Redis does not say what waits", ""}
	case *c.Queued > 0 || c.InFlight != nil && *c.InFlight > 0:
		return Mark{"", "Working", ""}
	}
	return Mark{"", "Nothing waits", ""}
}

// failing says that the last attempt of a push consumer failed.
func failing(c *apitype.ListedConsumer, late bool, now time.Time) (m Mark, ok bool) {
	failed := c.LastError != "" && c.LastAttemptAt != nil &&
		(c.LastSuccessAt == nil || c.LastSuccessAt.Before(c.LastAttemptAt.Time))
	if c.Type != "push" || !failed {
		return m, false
	}
	if m.Class = "warn"; late {
		m.Class = "bad"
	}
	m.Word = "The last attempt failed"
	if c.LastStatus > 0 {
		m.Word = fmt.Sprintf("The endpoint answers %d", c.LastStatus)
	}
	m.Sub = cut(c.LastError, mostText) + ", at " + clock(c.LastAttemptAt.Time, now)
	if c.LastSuccessAt != nil {
		m.Sub += "; the last success was at " + clock(c.LastSuccessAt.Time, now)
	}
	return m, true
}
