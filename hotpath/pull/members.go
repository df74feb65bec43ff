package pull

import (
	"errors"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// otherNames are names in lower case by which known members are taken, too.
var otherNames = map[string]string{"size": "Limit"}

// eachMember calls f for every member of the object that comes next, with the member's name as known
// spells it; f reads the value. Names match in any case. A null member counts as absent. An unknown or
// repeated member is refused, because ignoring it would silently drop a change that the client
// requested.
func eachMember(r *jsonread.Reader, known []string, f func(name string) error) error {
	var seen uint64 // by index in known
	return r.Object(func(name []byte) error {
		i := indexOf(known, name)
		switch {
		case i < 0:
			return unknownMember(string(name), known)
		case seen>>i&1 != 0:
			return problem.Newf(400, "invalid_body", "The body has %s twice in one object.", known[i])
		}
		seen |= 1 << i
		if r.Null() {
			return nil
		}
		return f(known[i])
	})
}

// indexOf returns the index of a member in known, -1 for none.
func indexOf(known []string, name []byte) int {
	for i, k := range known {
		if k == string(name) { // nearly always
			return i
		}
	}
	other := otherNames[strings.ToLower(string(name))]
	for i, k := range known {
		if strings.EqualFold(k, string(name)) || k == other {
			return i
		}
	}
	return -1
}

// unread returns the refusal of a body with an error of its reader. form says what is expected.
func unread(err, form error) error {
	var wrong *jsonread.Error
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Reason == "":
		return form
	}
	return problem.New(400, "invalid_body", "The body "+wrong.Reason+".")
}

// longestName bounds the shown part of an unknown member's name, in bytes.
const longestName = 64

func unknownMember(name string, known []string) error {
	meant := ""
	if best := problem.Nearest(name, known); best != "" {
		meant = "Did you mean " + best + "? "
	}
	return problem.Newf(400, "invalid_body", "The body has a member %+q, which is not known here. %sKnown are %s.",
		name[:min(len(name), longestName)], meant, strings.Join(known, ", "))
}
