package pull

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/problem"
)

// errNoObject says that a JSON value is no object. The caller answers with the
// form that it takes.
var errNoObject = errors.New("hotpath: not a JSON object")

// eachMember hands every member of a JSON object to f, under its name in known.
// Names are found in any case, as encoding/json finds them; a member that is null
// is as good as absent. One that is not known, or is there twice, is a problem:
// what it was to change would silently not be changed. text must be valid JSON.
func eachMember(text []byte, known []string, f func(name string, value []byte) error) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errNoObject
	}
	var seen uint64 // by index in known
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return errNoObject
		}
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
		if i < 0 {
			return unknownMember(name, known)
		}
		if seen&(1<<i) != 0 {
			return problem.Newf(400, "invalid_body", "The body has %s twice in one object.", known[i])
		}
		seen |= 1 << i
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return errNoObject
		}
		if string(value) == "null" {
			continue
		}
		if err := f(known[i], value); err != nil {
			return err
		}
	}
	return nil
}

// longestName is how much of an unknown member's name is shown, bytes.
const longestName = 64

func unknownMember(name string, known []string) error {
	meant := ""
	if best := problem.Nearest(name, known); best != "" {
		meant = "Did you mean " + best + "? "
	}
	return problem.Newf(400, "invalid_body", "The body has a member %+q, which is not known here. %sKnown are %s.",
		name[:min(len(name), longestName)], meant, strings.Join(known, ", "))
}
