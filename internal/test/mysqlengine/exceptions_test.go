package mysqlengine

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what does not run to the files of exceptions; reasons stay")

// An exception is a statement that this server does not run.
type exception struct {
	text  string
	said  string // by the server
	cause string // why that is nothing about MySQL 8
}

const (
	end     = ";\n\n"
	saidBy  = "-- The server: "
	because = "-- Because: "
	unknown = "nobody has looked it up yet"
)

// exceptions reads a file: for each statement the error, the reason and the text.
func exceptions(t *testing.T, file string) (all []exception) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for block := range strings.SplitSeq(strings.TrimSuffix(string(text), end), end) {
		said, rest, found := strings.Cut(block, "\n")
		require.True(t, found, block)
		cause, statement, found := strings.Cut(rest, "\n")
		require.True(t, found, block)
		require.Truef(t, strings.HasPrefix(said, saidBy) && strings.HasPrefix(cause, because), "%s: %s", file, block)
		all = append(all, exception{statement, said[len(saidBy):], cause[len(because):]})
	}
	return all
}

// hold compares what was refused with a file. What is not in it fails the test, and so does what is in it and was
// not refused, or was with another error, or has no reason.
func hold(t *testing.T, file string, refused []exception) {
	t.Helper()
	listed := exceptions(t, file)
	find := func(in []exception, text string) int {
		return slices.IndexFunc(in, func(e exception) bool { return e.text == text })
	}
	for i, e := range refused {
		switch at := find(listed, e.text); {
		case at < 0 && *update:
			refused[i].cause = unknown
		case at < 0:
			t.Errorf("%s lacks this statement, which the server refuses; is it one of MySQL 8?\n%s\n%s", file, e.said, e.text)
		default:
			refused[i].cause = listed[at].cause
			if listed[at].said != e.said && !*update {
				t.Errorf("%s: the server now says: %s\n%s", file, e.said, e.text)
			}
		}
	}
	if *update {
		write(t, file, refused)
	}
	for _, e := range exceptions(t, file) {
		if e.cause == unknown {
			t.Errorf("%s gives no reason for this statement:\n%s", file, e.text)
		}
		if find(refused, e.text) < 0 {
			t.Errorf("%s has a statement that runs, or that the store does not send; remove it:\n%s", file, e.text)
		}
	}
}

func write(t *testing.T, file string, all []exception) {
	t.Helper()
	slices.SortFunc(all, func(a, b exception) int { return strings.Compare(a.text, b.text) })
	var out strings.Builder
	for _, e := range all {
		fmt.Fprintf(&out, "%s%s\n%s%s\n%s%s", saidBy, e.said, because, e.cause, e.text, end)
	}
	require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o644))
}
