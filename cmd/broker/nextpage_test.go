package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The link to the next page goes on from its place when what it names is gone, has moved, or was made
// again.
func TestTheNextPageOutlivesWhatItNames(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	s := p.stage(t)
	page := func(path string) (links []string, next string) {
		var v struct {
			Result []string          `json:"result"`
			Pages  map[string]string `json:"pages"`
		}
		r := s.do("GET", path, "")
		require.Equal(t, 200, r.status, r.body)
		require.NoError(t, json.Unmarshal([]byte(r.body), &v))
		return v.Result, v.Pages["next"]
	}
	at := time.Now().Add(time.Hour)
	for i := range 4 {
		s.later(at.Add(time.Duration(i)*time.Second).Format(time.RFC3339), "x", "X-Broker-Message-ID", fmt.Sprint("s", i))
	}
	_, next := page(s.path("/scheduled-messages?size=2"))
	rest := []string{s.path("/scheduled-message/s3")}
	s.delete(s.path("/scheduled-message/s2"))
	got, _ := page(next)
	require.Equal(t, rest, got)
	s.later(at.Add(time.Minute).Format(time.RFC3339), "x", "X-Broker-Message-ID", "s2")
	got, _ = page(next)
	require.Equal(t, append(rest, s.path("/scheduled-message/s2")), got)

	var messages []string
	for i := range 4 {
		messages = append(messages, s.publish("x", "X-Broker-Message-ID", fmt.Sprint("m", i)))
	}
	_, next = page(s.path("/messages?size=2"))
	got, _ = page(next)
	require.Equal(t, messages[2:], got)
	require.Contains(t, next, "place=")
}
