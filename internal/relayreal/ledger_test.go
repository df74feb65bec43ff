//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func twoExamples(t *testing.T) []example {
	t.Helper()
	examples, err := parseExamples([]byte(`[{"name":"push","examples":[{ "a": "é\u00e9" }]},{"name":"ping","examples":[{}]}]`))
	require.NoError(t, err)
	return examples
}

func arrivalOf(e example) arrival {
	return arrival{id: e.id, event: e.event, delivery: e.delivery, contentType: contentType, attempt: "1", body: e.body}
}

func TestBodiesKeepTheSpellingOfTheFile(t *testing.T) {
	examples := twoExamples(t)
	require.Len(t, examples, 2)
	require.Equal(t, `{ "a": "é\u00e9" }`, string(examples[0].body))
	require.NotEqual(t, examples[0].id, examples[1].id)
	_, err := parseExamples([]byte(`[]`))
	require.Error(t, err)
}

func TestEverythingOnceAndUnchangedIsNoDeviation(t *testing.T) {
	examples := twoExamples(t)
	l := newLedger("push", examples)
	for _, e := range examples {
		l.add(arrivalOf(e))
	}
	total := l.close()
	require.Empty(t, total.deviations)
	require.Equal(t, 2, total.arrived)
	require.Equal(t, 2, total.identical)
	require.Zero(t, total.extra)
}

func TestEachDeviationIsNamed(t *testing.T) {
	for name, damage := range map[string]func(a *arrival){
		"body of":         func(a *arrival) { a.body = []byte(`{"a":"éé"}`) },
		"X-GitHub-Event":  func(a *arrival) { a.event = "" },
		"X-GitHub-Deli":   func(a *arrival) { a.delivery = "other" },
		"Content-Type":    func(a *arrival) { a.contentType = "text/plain" },
		"attempt":         func(a *arrival) { a.attempt = "2" },
		"never published": func(a *arrival) { a.id = "stranger" },
	} {
		examples := twoExamples(t)
		l := newLedger("push", examples)
		l.add(arrivalOf(examples[1]))
		a := arrivalOf(examples[0])
		damage(&a)
		l.add(a)
		total := l.close()
		require.Contains(t, strings.Join(total.deviations, "\n"), name)
		require.Equal(t, 1, total.identical, name)
	}
}

func TestACopyAndALossAreDeviations(t *testing.T) {
	examples := twoExamples(t)
	l := newLedger("pull", examples)
	l.add(arrivalOf(examples[0]))
	l.add(arrivalOf(examples[0]))
	total := l.close()
	require.Equal(t, []string{"pull: push.0 came 2 times", "pull: ping.0 never came"}, total.deviations)
	require.Equal(t, 1, total.extra)
}

func TestTheTableSaysWhetherAllIsWell(t *testing.T) {
	var out strings.Builder
	good := tally{arrived: 2, identical: 2}
	require.True(t, report(&out, []result{{stores: "embedded", published: 2, push: good, pull: good}}))
	require.Contains(t, out.String(), "nothing lost")
	out.Reset()
	bad := tally{arrived: 1, identical: 1, deviations: []string{"push: x never came"}}
	require.False(t, report(&out, []result{{stores: "embedded", published: 2, push: bad, pull: good}}))
	require.Contains(t, out.String(), "push: x never came")
}
