package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A filter sees the attributes of an event decoded and alike in each mode, and integers exactly, from
// the publish to the delivery.
func TestFiltersSeeOneTruth(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(fetchInside)
		for name, story := range map[string]func(*testing.T, *process){
			"attributes of events": filteredEvents,
			"large integers":       filteredIntegers,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// filtering is a stage whose consumers push and pull have a filter, and all has none.
func (p *process) filtering(t *testing.T, filter string) (*stage, *sink) {
	to := newSink(t, nil)
	s := p.stage(t, "push="+to.URL, "pull", "all")
	for _, k := range []string{"push", "pull"} {
		s.put(s.path("/consumer/", k), "filter", filter)
	}
	return s, to
}

// requireFiltered requires that of the messages, which are matched or not, the matched ones alone reach
// the consumers with a filter.
func (s *stage) requireFiltered(to *sink, matched map[string]bool) {
	s.t.Helper()
	n := 0
	for at, match := range matched {
		if match {
			n++
		}
		for _, k := range []string{"push", "pull"} {
			require.Equal(s.t, !match, s.jobOf(at, k).Status == "FILTERED", "%s of %s", k, at)
		}
		require.NotEqual(s.t, "FILTERED", s.jobOf(at, "all").Status)
	}
	eventually(s.t, "the deliveries", func() bool { return to.count() == n })
	for _, got := range to.all() {
		require.True(s.t, matched[s.path("/message/", got.header.Get("X-Broker-Message-ID"))], got.header)
	}
	for _, j := range s.awaitQueued("pull", n) {
		require.True(s.t, matched[s.path("/message/", j.Message.MessageID)], j.Message.MessageID)
	}
	require.Len(s.t, s.awaitQueued("all", len(matched)), len(matched))
	require.Equal(s.t, n, to.count())
}

func filteredEvents(t *testing.T, p *process) {
	s, to := p.filtering(t, `headers["ce-subject"] == 'a b "ü" 100%' && headers["ce-sequence"] == "1000000"`)
	matched := map[string]bool{}
	binary := func(id, subject string, match bool) {
		matched[s.publish("x", ce(id, "ce-sequence", "1000000", "ce-subject", subject, "Content-Type",
			"text/plain")...)] = match
	}
	binary("1", `a%20b%20%22%C3%BC%22%20100%25`, true)
	binary("2", `a b %22%c3%bc%22 100%25`, true)
	binary("3", `a%2520b%20%22%C3%BC%22%20100%25`, false)
	binary("4", `a+b+%22%C3%BC%22+100%25`, false)
	structuredEvent := func(id, subject string, match bool) {
		matched[s.publish(eventText(id, `,"sequence":1000000,"data":1,"subject":`+subject), "Content-Type",
			structured)] = match
	}
	structuredEvent("5", `"a b \"ü\" 100%"`, true)
	structuredEvent("6", `"a b \"\u00fc\" 100%"`, true)
	structuredEvent("7", `"a%20b%20%22%C3%BC%22%20100%25"`, false)
	for i, r := range s.events("/broadcast", eventText("8", `,"sequence":1000000,"subject":"a b \"ü\" 100%"`),
		eventText("9", `,"sequence":1000000,"subject":"a b"`)) {
		require.Equal(t, 201, r.Status)
		matched[r.Location] = i == 0
	}
	s.requireFiltered(to, matched)
}

func filteredIntegers(t *testing.T, p *process) {
	const n = 820982911946154508 // above 2^53, where its neighbours are the same float64
	s, to := p.filtering(t, fmt.Sprintf("payload.id == %d || payload.order.lines[0] >= 9223372036854775807", n))
	matched := map[string]bool{}
	for text, match := range map[string]bool{
		fmt.Sprintf(`{"id":%d}`, n): true, fmt.Sprintf(`{"id":%d}`, n-1): false, fmt.Sprintf(`{"id":%d}`,
			n+1): false, fmt.Sprintf(`{"id":"%d"}`, n): false,
		`{"order":{"lines":[9223372036854775807]}}`: true, `{"order":{"lines":[9223372036854775806]}}`: false,
	} {
		matched[s.publish(text, "Content-Type", "application/json")] = match
		lines := s.lines(fmt.Sprintf(`{"Payload":%q,"ContentType":"application/json"}`, text))
		require.Equal(t, 201, lines[0].Status)
		matched[lines[0].Location] = match
	}
	s.requireFiltered(to, matched)
}
