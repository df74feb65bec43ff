package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

func invalidBody(format string, args ...any) error {
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_body", format, args...)
}

// readObject reads a body that must be one JSON object with the members of into, a pointer to a struct.
// example is one that is right.
func readObject(body []byte, into any, example string) error {
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' {
		return invalidBody("The body must be a JSON object like %s.", example)
	}
	err := jsonread.Check(body)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		err = dec.Decode(into)
	}
	var typ *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typ) && typ.Field != "":
		// An embedded struct has a name of its own in Field, and an element the name of its list.
		name, kind := typ.Field[strings.LastIndexByte(typ.Field, '.')+1:], typ.Type
		if f, ok := reflect.TypeOf(into).Elem().FieldByName(name); ok {
			kind = f.Type
		}
		return invalidBody("The member %s must be %s.", name, kindOf(kind))
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name, _ := strconv.Unquote(strings.TrimPrefix(err.Error(), "json: unknown field "))
		known, meant := memberNames(reflect.TypeOf(into).Elem()), ""
		if best := problem.Nearest(name, known); best != "" {
			meant = "Did you mean " + best + "? "
		}
		return invalidBody("The body has a member %+q, which is not known here. %sKnown are %s.", name[:min(len(name), 64)],
			meant, strings.Join(known, ", "))
	}
	if reason := jsonread.Reason(err); reason != "" {
		return invalidBody("The body %s.", reason)
	}
	return invalidBody("The body must be a JSON object like %s.", example)
}

// memberNames returns the names of the members of a struct, those of embedded ones in their place.
func memberNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !f.Anonymous {
			names = append(names, name)
		}
	}
	return names
}

// kindOf says in words what a member must be.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list of texts"
	}
	return "a " + t.String()
}
