package api

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// A bodyKind is what the body of a PUT or POST may have, as a form or as JSON. In JSON the members are
// what GET shows, so that a client can PUT what it got: a name counts in any case, so that the one of
// the form is the same, and the fields of a policy may stand in Policy or beside it.
type bodyKind struct {
	fields []string
	policy []string // fields that may stand in Policy
	shown  []string // members of an answer to GET; those that are no fields are read and ignored
}

// membersOf returns the names of the members of an answer.
func membersOf(view any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(view)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func badJSON(format string, args ...any) error {
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_json", format, args...)
}

// parseJSON reads a JSON object. A number or a boolean is the text that a form would have, null is as
// good as absent.
func (k *bodyKind) parseJSON(body []byte) (document, error) {
	d := document{form: form{}, json: true}
	text := bytes.TrimSpace(body)
	switch {
	case len(body) > maxFormBytes:
		return document{}, errFormSize
	case len(text) == 0, len(k.fields) == 0 && string(text) == "null": // of clients that always send something
		return d, nil
	}
	r := jsonReader{Reader: jsonread.Open(text), kind: k, into: &d, seen: map[string]bool{}}
	defer r.Close()
	if kind := r.Kind(); kind != '{' && kind != 0 {
		return document{}, errNoObject
	}
	err := r.Object(r.member)
	if err == nil {
		err = r.End()
	}
	var wrong *jsonread.Error
	switch {
	case err == nil:
		return d, nil
	case !errors.As(err, &wrong):
		return document{}, err
	case wrong.Reason != "":
		return document{}, badJSON("The body %s.", wrong.Reason)
	}
	return document{}, badJSON("The body must be one JSON object and nothing after it.")
}

var errNoObject = badJSON(`The body, and Policy in it, must be a JSON object such as {"Name":"orders"}.`)

// A jsonReader reads the members of one body.
type jsonReader struct {
	*jsonread.Reader
	kind *bodyKind
	into *document
	seen map[string]bool // by name in lower case
}

// member reads a member of the body.
func (r *jsonReader) member(name []byte) error {
	k := r.kind
	if field := find(k.fields, string(name)); field != "" {
		return r.set(field)
	}
	shown := find(k.shown, string(name))
	if shown == "" {
		return k.unknownMember(string(name), k.fields)
	}
	if err := r.once(shown); err != nil || r.Null() {
		return err
	}
	var err error
	switch {
	case shown == "ID":
		r.into.id, err = r.textOf(shown)
	case k.policy != nil && shown == "Policy":
		if r.Kind() != '{' {
			return errNoObject
		}
		err = r.Object(r.memberOfPolicy)
	case k.policy != nil && shown == "Inherited":
		err = r.inherited()
	default:
		_, err = r.Value()
	}
	return err
}

func (r *jsonReader) memberOfPolicy(name []byte) error {
	if field := find(r.kind.policy, string(name)); field != "" {
		return r.set(field)
	}
	return r.kind.unknownMember(string(name), r.kind.policy)
}

// set reads the value of a field.
func (r *jsonReader) set(field string) error {
	if err := r.once(field); err != nil || r.Null() {
		return err
	}
	text, err := r.textOf(field)
	r.into.form[field] = text
	return err
}

// once refuses a member that occurs twice, in whatever spelling and place.
func (r *jsonReader) once(name string) error {
	if folded := lowerASCII(name); !r.seen[folded] {
		r.seen[folded] = true
		return nil
	}
	return problem.Newf(fasthttp.StatusBadRequest, "duplicate_field",
		"The body has the member %s more than once. Names count in any case, and a field of Policy may stand beside it.",
		name)
}

// inherited reads the names of the members of Policy that a consumer does not set itself.
func (r *jsonReader) inherited() error {
	r.into.inherited = map[string]bool{}
	err := r.Array(func() error {
		name, err := r.Text()
		if field := find(r.kind.policy, string(name)); field != "" {
			r.into.inherited[field] = true
		}
		return err
	})
	if errors.Is(err, jsonread.ErrForm) {
		return badJSON("The member Inherited must be a list of names.")
	}
	return err
}

// unknownMember refuses a member that would have no effect.
func (k *bodyKind) unknownMember(name string, known []string) error {
	if len(known) == 0 {
		return problem.Newf(fasthttp.StatusBadRequest, "unknown_field",
			"The body has a member %+q, and this route takes none.", quoted(name))
	}
	meant := ""
	if best := problem.Nearest(name, append(append([]string{}, known...), k.shown...)); best != "" {
		meant = "Did you mean " + best + "? "
	}
	return problem.Newf(fasthttp.StatusBadRequest, "unknown_field",
		"The body has a member %+q, which this route does not take. %sIn any case of letters, its members are %s.",
		quoted(name), meant, strings.Join(known, ", "))
}

// textOf reads the value of a member as a form has it. The refusal does not quote it.
func (r *jsonReader) textOf(name string) (string, error) {
	switch r.Kind() {
	case '{', '[':
		return "", badJSON("The member %s must be a text, a number, true, false or null.", name)
	case '"':
		text, err := r.Text()
		if reason := jsonread.Reason(err); reason != "" {
			return "", badJSON("The member %s %s.", name, reason)
		}
		return string(text), err
	case '0':
		value, err := r.Value()
		return numberText(string(value)), err
	}
	value, err := r.Value()
	return string(value), err
}

// mostExact is the largest whole number up to which a float64 has each one.
const mostExact = 1 << 53

// numberText returns a JSON number as forms have it: a whole one is written with digits alone.
func numberText(text string) string {
	if strings.Trim(text, "0123456789") == "" {
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < -mostExact || f > mostExact || f != float64(int64(f)) {
		return text
	}
	return strconv.FormatInt(int64(f), 10)
}

// find returns the name that is the same but for the case of letters, "" for none.
func find(names []string, name string) string {
	folded := lowerASCII(name)
	for _, n := range names {
		if len(n) == len(folded) && lowerASCII(n) == folded {
			return n
		}
	}
	return ""
}

// lowerASCII changes letters of ASCII alone: others have no second spelling here.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
