package pull

import (
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// MaxIncrementalTimeout bounds IncrementalTimeout, in seconds: a week.
const MaxIncrementalTimeout = 7 * 24 * 3600

// A transition is the body of a job POST.
type transition struct {
	next  string // INFLIGHT, DELIVERED, DEAD or QUEUED
	extra time.Duration
	all   update // the members as they came
}

// moveMembers are the members of the body of a job POST: those of an entry of a batch update, without
// the ID, which stands in the path.
var moveMembers = slices.DeleteFunc(slices.Clone(updateMembers), func(name string) bool { return name == "ID" })

var errMoveBody = problem.New(400, "invalid_body",
	`The body must be a JSON object like {"NextState":"INFLIGHT","IncrementalTimeout":10}.`)

// parseTransition reads {"NextState":..., "IncrementalTimeout":...}. The body is exactly one JSON object
// of known members. An IncrementalTimeout of 0 counts as absent.
func parseTransition(body []byte) (transition, error) {
	switch string(body) { // the bodies that nearly every worker sends
	case `{"NextState":"INFLIGHT"}`:
		return transition{next: "INFLIGHT"}, nil
	case `{"NextState":"DELIVERED"}`:
		return transition{next: "DELIVERED"}, nil
	}
	var t transition
	r := jsonread.Open(body)
	defer r.Close()
	err := eachMember(r, moveMembers, func(member string) error {
		err := t.all.read(r, member)
		switch {
		case !errors.Is(err, jsonread.ErrForm):
		case member == "IncrementalTimeout":
			return errTimeout
		case member == "Timeout":
			return errLength
		case member == "Delay":
			return errDelay
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return transition{}, unread(err, errMoveBody)
	}
	t.next = t.all.NextState
	if err := t.check(); err != nil {
		return transition{}, err
	}
	t.extra = time.Duration(t.all.IncrementalTimeout) * time.Second
	return t, nil
}

// check refuses a state that does not exist, and members that do not belong to the state.
func (t *transition) check() error {
	switch t.next {
	case "INFLIGHT", "DELIVERED", "DEAD", "QUEUED":
	default:
		return errNextState
	}
	if err := t.all.belongs(); err != nil {
		return err
	}
	return nil
}

// contact is the kind of contact that the request is, with a lease that it may present.
func (t *transition) contact(lease string) presence.Kind {
	switch {
	case t.next != "INFLIGHT":
		return presence.Move
	case lease != "":
		return presence.Renewal
	}
	return presence.Claim
}

// entry returns the entry of a batch update that says the same as a request which brings a response
// along, gives a leased job back or extends its lease: QUEUED or INFLIGHT with the lease. ok is false
// for every other request.
func (t *transition) entry(job, lease string) (e update, ok bool) {
	e = t.all
	e.ID, e.NextState, e.Lease = job, t.next, lease
	return e, e.responds() || lease != "" && (t.next == "QUEUED" || t.next == "INFLIGHT")
}
