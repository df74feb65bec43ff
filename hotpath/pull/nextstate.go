package pull

import (
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// MaxIncrementalTimeout bounds IncrementalTimeout, in seconds: a week.
const MaxIncrementalTimeout = 7 * 24 * 3600

// moveMembers are the members of the body of a job POST: those of an entry of a batch update, without
// the ID, which stands in the path.
var moveMembers = slices.DeleteFunc(slices.Clone(updateMembers), func(name string) bool { return name == "ID" })

var errMoveBody = problem.New(400, "invalid_body",
	`The body must be a JSON object like {"NextState":"INFLIGHT","IncrementalTimeout":10}.`)

// parseTransition reads {"NextState":..., "IncrementalTimeout":...}. The body is exactly one JSON object
// of known members. An IncrementalTimeout of 0 counts as absent.
func parseTransition(body []byte) (e update, err error) {
	switch string(body) { // the bodies that nearly every worker sends
	case `{"NextState":"INFLIGHT"}`:
		return update{NextState: "INFLIGHT"}, nil
	case `{"NextState":"DELIVERED"}`:
		return update{NextState: "DELIVERED"}, nil
	}
	r := jsonread.Open(body)
	defer r.Close()
	err = eachMember(r, moveMembers, func(member string) error {
		err := e.read(r, member)
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
		return e, unread(err, errMoveBody)
	}
	if stateLabel(e.NextState) == refused {
		return e, errNextState
	}
	return e, e.belongs()
}

// contact is the kind of contact that a request about one job is.
func (e *update) contact() presence.Kind {
	switch {
	case e.NextState != "INFLIGHT":
		return presence.Move
	case e.Lease != "":
		return presence.Renewal
	}
	return presence.Claim
}
