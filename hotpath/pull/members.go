package pull

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// errNoObject reports a JSON value that is not an object. The caller answers with the expected
// form.
var errNoObject = errors.New("hotpath: not a JSON object")

// otherNames are names in lower case by which known members are taken, too.
var otherNames = map[string]string{"size": "Limit"}

// eachMember calls f for every member of a JSON object, with the member's name as known spells it.
// Names match in any case, as in encoding/json. A null member counts as absent. An unknown or
// repeated member is refused, because ignoring it would silently drop a change that the client
// requested. text must be valid JSON.
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
		other := otherNames[strings.ToLower(name)]
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) || k == other })
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
