package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
)

// made is a builder that has made the document, and the document.
func made(t *testing.T) (*builder, string) {
	t.Helper()
	b, text, err := build(root)
	require.NoError(t, err)
	return b, string(text)
}

func TestTheDocumentIsWhatTheSourcesSay(t *testing.T) {
	committed, err := os.ReadFile("../openapi.json")
	require.NoError(t, err)
	_, text := made(t)
	want, got := strings.Split(text, "\n"), strings.Split(string(committed), "\n")
	for i := range min(len(want), len(got)) {
		require.Equal(t, want[i], got[i], "line %d: make openapi writes the document", i+1)
	}
	require.Equal(t, len(want), len(got), "make openapi writes the document")
}

// A description of something that is gone would mislead its reader.
func TestEveryDescriptionIsOfSomethingThatExists(t *testing.T) {
	b, _ := made(t)
	var names []string
	for _, r := range api.Routes() {
		names = append(names, r.Method+" "+r.Path)
	}
	of := func(routes string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return fits(routes, name) })
	}
	words := slices.Concat(pathWords, queryWords, headerWords)
	for _, w := range answerHeaders {
		words = append(words, w.word)
	}
	for _, w := range words {
		require.True(t, b.spoken[w.name+" "+w.routes], "no route has %s (%s)", w.name, w.routes)
	}
	for name := range examples {
		require.True(t, b.spoken["example "+name], "no body is a %s", name)
	}
	for _, c := range routesOfCodes {
		for pattern := range strings.SplitSeq(c.routes, ",") {
			require.True(t, of(strings.TrimPrefix(strings.TrimSpace(pattern), "-")), "no route is %q", pattern)
		}
		for _, name := range strings.Fields(c.codes) {
			require.True(t, slices.ContainsFunc(b.codes, func(known code) bool { return known.Code == name }),
				"docs/errors*.md have no code %s", name)
		}
	}
}

// Each member of a body has a description, or a name that says all.
func TestTypesAndMostMembersHaveDescriptions(t *testing.T) {
	b, _ := made(t)
	for name := range b.schemas.byName {
		require.NotEmpty(t, b.schemas.comments.typed(name), "the type %s has no comment", name)
	}
}

func TestPatternsOfRoutes(t *testing.T) {
	for list, want := range map[string]bool{
		"GET /a/{b}": true, "GET *": true, "*": true, "*/{b}": true, "GET /*/{b}": true, "POST *, GET /a*": true,
		"GET *, -*/{b}": false, "GET /a": false, "POST *": false, "*/b": false, "": false, "GET /a/{b}/*": false,
	} {
		require.Equal(t, want, fits(list, "GET /a/{b}"), list)
	}
}

func TestAnExampleOfEachStoredAnswerIsShown(t *testing.T) {
	b, text := made(t)
	require.Greater(t, len(b.answers), 40)
	require.NotContains(t, text, "<id", "masks of the tests")
	require.NotContains(t, text, "s3cret")
	require.Equal(t, "GET /channel/{channel}/consumer/{consumer}/job/{job}", routeOf(
		"GET /channel/c/consumer/push/job/06gvk?x=1"))
}
