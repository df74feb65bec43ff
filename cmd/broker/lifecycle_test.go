package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/test/lifecycle"
)

// Each row of the table of docs/explain/lifecycle.md is kept, on both kinds of stores.
func TestWhatBelongsToAResourceEndsOrFollowsAsTheTableSays(t *testing.T) {
	var rows []string
	checks := map[string]func(*testing.T, *stage){}
	for _, some := range []map[string]func(*testing.T, *stage){producerLives, channelLives, consumerLives, otherLives} {
		for key, check := range some {
			checks[key] = check
		}
	}
	for _, row := range lifecycle.Table {
		rows = append(rows, row.Key())
		require.Contains(t, checks, row.Key(), "a row without a check")
	}
	require.Len(t, checks, len(rows), "a check without a row")
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=300ms",
			"BROKER_MAX_RETRIES=100", "BROKER_RETRY_MAX_DELAY=300ms", "BROKER_ADAPTIVE_PERIOD=1s", "BROKER_FETCH_EGRESS=private")
		for _, key := range rows {
			t.Run(key, func(t *testing.T) { t.Parallel(); checks[key](t, p.stage(t)) })
		}
	})
}

// own is the name of a producer of this stage alone.
func (s *stage) own() string { return s.channel + "-producer" }

// publishAs publishes as a producer and returns the path of the message or schedule.
func (s *stage) publishAs(producer, body string, headers ...string) string {
	s.t.Helper()
	r := s.do("POST", s.path("/broadcast"), body, append(tokensOf(producer), headers...)...)
	require.Equal(s.t, 201, r.status, r.body)
	return r.header.Get("Location")
}

func tokensOf(producer string) []string {
	return []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", producer, "X-Broker-Producer-Token", producer + "-token"}
}

// answers returns the responses to a message, as management sees them.
func (s *stage) answers(at string) (v apitype.Responses) {
	s.t.Helper()
	r := s.do("GET", at+"/responses", "")
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &v))
	return v
}

// awaitAnswer waits until the only response to a message is in a state.
func (s *stage) awaitAnswer(at, state string) (v apitype.Response) {
	s.t.Helper()
	eventually(s.t, "the exchange to be "+state, func() bool {
		all := s.answers(at).Result
		if len(all) == 1 {
			v = all[0]
		}
		return v.State == state
	})
	return v
}

// responder joins a push consumer whose responses go back.
func (s *stage) responder(fields ...string) *sink {
	s.t.Helper()
	k := newSink(s.t, func(int, received) int { return 200 })
	s.put(s.path("/consumer/k"), append([]string{"token", "k-token", "callbackUrl", k.URL, "responses", "callback"}, fields...)...)
	return k
}

// replyTo makes the producer of this stage with a reply URL that answers with a status.
func (s *stage) replyTo(status int) *sink {
	s.t.Helper()
	to := newSink(s.t, func(int, received) int { return status })
	s.put("/producer/"+s.own(), "token", s.own()+"-token", "replyUrl", to.URL)
	return to
}

// onItsWay publishes a message whose reply the URL has refused at least once.
func (s *stage) onItsWay(to *sink) (at string) {
	s.t.Helper()
	at = s.publishAs(s.own(), "m")
	eventually(s.t, "a try of the reply", func() bool { return to.count() > 0 })
	return at
}

// quiet requires that a sink gets nothing more, for as long as several retries take.
func (s *stage) quiet(k *sink) {
	s.t.Helper()
	eventually(s.t, "what is under way", func() bool { return k.open.Load() == 0 })
	before := k.count()
	time.Sleep(1500 * time.Millisecond)
	require.Equal(s.t, before, k.count(), "requests that must not be made")
}

// senderTo returns the path of the consumer that posts replies to a URL.
func (s *stage) senderTo(to *sink) (at string) {
	s.t.Helper()
	eventually(s.t, "the consumer of replies", func() bool {
		var page struct{ Result []string }
		require.NoError(s.t, json.Unmarshal([]byte(s.do("GET", "/channels?size=100&first=~replies-", "").body), &page))
		for _, ch := range page.Result {
			r := s.do("GET", ch+"/consumer/sender", "")
			if r.status == 200 && s.decodeConsumer(r).CallbackURL == to.URL {
				at = ch + "/consumer/sender"
			}
		}
		return at != ""
	})
	return at
}

func (s *stage) stateAt(path string) string {
	s.t.Helper()
	return s.decodeConsumer(s.do("GET", path, "")).State
}
