// Package apitest has what the tests of writers and parsers share that hold them equal to the
// types of package apitype.
package apitest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// HostileTexts are UTF-8 that a writer of JSON could get wrong. HostileBytes are not UTF-8.
var (
	HostileTexts = []string{
		"", "plain", `"`, `\`, `\u0000`, "</script>&", "\x7f", "\u0080\u2028\u2029\ufeff\ufffd\uffff", "\U0001f600",
		"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
			"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
		strings.Repeat("long \x01\u00e9", 10_000),
	}
	HostileBytes = []string{"\xff", "half a rune \xc3", "\xed\xa0\x80", "\xc0\x80\x00\"", "\xf4\x90\x80\x80",
		strings.Repeat("\x80\n", 10_000)}
)

// AnswerType returns the zero value of the answer to a route in package apitype.
func AnswerType(t *testing.T, method, path string) any {
	t.Helper()
	for _, r := range apitype.Routes() {
		if r.Method == method && r.Path == path {
			require.Len(t, r.Answers, 1)
			return r.Answers[0].Value
		}
	}
	t.Fatalf("no route %s %s", method, path)
	return nil
}

// Members are the members of all requests and answers in package apitype.
func Members() []string {
	names := map[string]bool{"": true}
	for _, r := range apitype.Routes() {
		for _, a := range append(r.Answers, apitype.Answer{Body: r.Request}) {
			if a.Value == nil {
				continue
			}
			for member := range strictjson.Of(a.Value) {
				_, name, _ := strings.Cut(member, ".")
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// RequireOnlyKnown requires that parse takes the members of the type of v and no others. body
// returns a valid body in which a member has the value null. same compares names.
func RequireOnlyKnown(t *testing.T, v any, code string, same func(a, b string) bool, body func(member string) string,
	parse func(body string) error) {
	t.Helper()
	known := strictjson.Names(v)
	for _, name := range Members() {
		err := parse(body(name))
		if slices.ContainsFunc(known, func(k string) bool { return same(k, name) }) {
			require.NoError(t, err, name)
		} else {
			require.Error(t, err, name)
			require.Equal(t, code, problem.From(err).Code, name)
		}
	}
}

// Encoded is v as encoding/json writes it.
func Encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
