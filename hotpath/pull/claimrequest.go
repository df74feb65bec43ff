package pull

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// A claimRequest holds the parameters of a batch claim.
type claimRequest struct {
	limit   int
	wait    time.Duration
	timeout time.Duration // of the leases; 0: as the consumer has it when the jobs are leased
	worker  string        // who gets them, as redisq.Lease has it
	tasks   []string      // that the claim takes; nil: all
	bare    bool          // nothing is said of the jobs that are left
}

// claimMembers are the members of a claim's body. In lower case they are the parameters of its
// query. Limit has another name there, too.
var claimMembers = []string{"Limit", "Wait", "Timeout"}

var (
	errClaimBody = problem.New(400, "invalid_body",
		`The body must be empty or a JSON object like {"Limit":100,"Wait":"20s","Timeout":60}.`)
	errClaimLimit = problem.New(400, "invalid_limit", "limit must be an integer of at least 1.")
	errClaimWait  = problem.New(400, "invalid_wait", "wait must be a duration like 20s, or a number of seconds.")
	errClaimTime  = problem.Newf(400, "invalid_timeout", "timeout must be whole seconds from 1 to %d.",
		MaxIncrementalTimeout)
)

// parseClaim reads the parameters of a claim from its query and from a JSON object in its body. The
// Content-Type of the body is ignored, as in job transitions. A parameter in both query and body is
// refused, even with equal values.
func parseClaim(args *fasthttp.Args, body []byte) (claimRequest, error) {
	q := claimRequest{limit: defaultClaimed}
	if err := eachOnce(args, "limit", "size", "wait", "timeout"); err != nil {
		return q, err
	}
	for _, name := range []string{limitIn(args), "wait", "timeout"} {
		if args.Has(name) {
			if err := q.set(name, string(args.Peek(name))); err != nil {
				return q, err
			}
		}
	}
	if len(body) == 0 {
		return q, nil
	}
	r := jsonread.Open(body)
	defer r.Close()
	err := eachMember(r, claimMembers, func(member string) error {
		name := strings.ToLower(member)
		if name == "limit" && args.Has(limitIn(args)) || args.Has(name) {
			return problem.Newf(400, "duplicate_field", "%s stands in the query and in the body.", name)
		}
		read := r.Value
		if name == "wait" && r.Kind() == '"' {
			read = r.Text
		}
		text, err := read()
		if err == nil {
			err = q.set(name, string(text))
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	return q, unread(err, errClaimBody)
}

// eachOnce refuses a query in which one of the named parameters occurs twice: a proxy may have read
// the other value.
func eachOnce(args *fasthttp.Args, names ...string) error {
	if args.Len() < 2 { // nearly always
		return nil
	}
	for _, name := range names {
		if len(args.PeekMulti(name)) > 1 {
			return problem.Newf(400, "invalid_query", "The parameter %s occurs more than once.", name)
		}
	}
	if args.Has("limit") && args.Has("size") {
		return problem.New(400, "invalid_query", "The parameters limit and size are two names of one.")
	}
	return nil
}

// set parses one parameter. Query and body use the same forms: whole numbers and durations.
func (q *claimRequest) set(name, text string) error {
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // n is the nearest int: the bounds below refuse or clip it
	}
	switch name {
	case "limit", "size":
		if err != nil || n < 1 {
			return errClaimLimit
		}
		q.limit = min(n, maxClaimed)
	case "wait":
		d := time.Duration(min(max(n, -1), 3600)) * time.Second
		if err != nil {
			d, err = quantity.Duration(text)
		}
		if err != nil || d < 0 {
			return errClaimWait
		}
		q.wait = min(d, maxClaimWait)
	case "timeout":
		if err != nil || n < 1 || n > MaxIncrementalTimeout {
			return errClaimTime
		}
		q.timeout = time.Duration(n) * time.Second
	}
	return nil
}
