package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grouped makes a channel of a group with its own limits and returns both.
func (p *process) grouped(t *testing.T, limits ...string) (s *stage, group string) {
	s = p.stage(t, "k")
	group = "group-of-" + s.channel
	s.put("/group/"+group, limits...)
	s.put(s.path(), "group", group)
	return s, group
}

var jsonEvent = []string{"Content-Type", "application/cloudevents+json"}

// refusedEverywhere requires that each way in is refused with 503 group_paused.
func (s *stage) refusedEverywhere() {
	s.t.Helper()
	for way, r := range map[string]reply{
		"broadcast": s.do("POST", s.path("/broadcast"), "x", producerTokens...),
		"delayed": s.do("POST", s.path("/broadcast"), "x", append([]string{"X-Broker-Delay", "1h"},
			producerTokens...)...),
		"event": s.do("POST", s.path("/broadcast"), `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`,
			append(jsonEvent, producerTokens...)...),
		"bulk": s.do("POST", s.path("/bulk"), `{"Payload":"x"}`, append([]string{"Content-Type",
			"application/x-ndjson"}, producerTokens...)...),
	} {
		require.Equal(s.t, 503, r.status, "%s: %s", way, r.body)
		require.Contains(s.t, r.body, `"group_paused"`, way)
		require.NotEmpty(s.t, r.header.Get("Retry-After"), way)
	}
	lines := s.do("POST", s.path("/batch"), "{\"Payload\":\"1\"}\n{\"Payload\":\"2\"}\n", append([]string{"Content-Type",
		"application/x-ndjson"}, producerTokens...)...)
	require.Equal(s.t, 200, lines.status)
	require.Equal(s.t, 2, strings.Count(lines.body, "group_paused"), lines.body)
}

// A group is paused while a message waits for its time, over a restart. Nothing comes in, what came in before is
// delivered, and the message goes out when the group is resumed.
func pausedGroup(t *testing.T, w *world) {
	p := w.start()
	s, group := p.grouped(t)
	stored := s.do("POST", s.path("/broadcast"), "before", producerTokens...)
	require.Equal(t, 201, stored.status, stored.body)
	later := s.delayed("2s", "later")
	require.Contains(t, s.do("POST", "/group/"+group+"/pause", "").body, `"State":"PAUSED"`)
	s.refusedEverywhere()
	require.Equal(t, 0, p.stop())
	p = w.start()
	s = s.on(p)
	s.refusedEverywhere()
	require.Contains(t, s.do("GET", later+"/why", "").body, `"group_paused"`)
	eventually(t, "the message is due", func() bool {
		return strings.Contains(s.do("GET", later+"/why", "").body, `"group_paused"`) &&
			!strings.Contains(s.do("GET", later, "").body, `"DISPATCHED"`)
	})
	eventually(t, "what was stored before is delivered", func() bool {
		_, claimed := s.claimOf("k")
		return strings.Contains(claimed.body, `"before"`)
	})
	require.Equal(t, 200, s.do("POST", "/group/"+group+"/resume", "").status)
	eventually(t, "the scheduled message is delivered", func() bool {
		_, claimed := s.claimOf("k")
		return strings.Contains(claimed.body, `"later"`)
	})
	require.Equal(t, 201, s.do("POST", s.path("/broadcast"), "after", producerTokens...).status)
}

func TestAPausedGroupTakesNothingAndLosesNothing(t *testing.T) {
	parallel(t)
	pausedGroup(t, embeddedWorld(t))
}

func TestAPausedGroupTakesNothingAndLosesNothingOnRealServers(t *testing.T) {
	parallel(t)
	pausedGroup(t, realWorld(t))
}

// Two brokers that put channels into a group at once put in no more than fit, and a pause at one refuses at both
// from its answer on.
func TestTwoBrokersKeepTheLimitsOfAGroupOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	a, b := w.start(), w.start()
	s, group := a.grouped(t, "maxChannels", "5")
	var in, full atomic.Int32
	var all sync.WaitGroup
	for i := range 12 {
		p := []*process{a, b}[i%2]
		all.Go(func() {
			r, err := p.ask("PUT", fmt.Sprintf("/channel/member-%d", i), "group="+group, "Content-Type",
				"application/x-www-form-urlencoded")
			switch {
			case err == nil && r.status == 201:
				in.Add(1)
			case err == nil && r.status == 409 && strings.Contains(r.body, `"group_full"`):
				full.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 4, in.Load(), "with the first channel there are five")
	require.EqualValues(t, 8, full.Load())
	require.Equal(t, 200, a.do("POST", "/group/"+group+"/pause", "").status)
	s.on(b).refusedEverywhere()
	require.Equal(t, 200, b.do("POST", "/group/"+group+"/resume", "").status)
	require.Equal(t, 201, s.do("POST", s.path("/broadcast"), "x", producerTokens...).status)
}

// publishes sends n messages and counts the answers.
func (s *stage) publishes(n int) (accepted int) {
	s.t.Helper()
	for range n {
		r := s.do("POST", s.path("/broadcast"), "x", producerTokens...)
		if r.status == 201 {
			accepted++
			continue
		}
		require.Equal(s.t, 429, r.status, r.body)
		require.Contains(s.t, r.body, `"publish_rate_exceeded"`)
		wait, err := strconv.Atoi(r.header.Get("Retry-After"))
		require.NoError(s.t, err)
		require.GreaterOrEqual(s.t, wait, 1)
	}
	return accepted
}

func (s *stage) batchOf(n int) reply {
	return s.do("POST", s.path("/batch"), strings.Repeat("{\"Payload\":\"1\"}\n", n), append([]string{"Content-Type",
		"application/x-ndjson"}, producerTokens...)...)
}

// Each rate bounds what all brokers accept together, whatever the way in. A message that is sent later counted when
// it was accepted.
func TestPublishRatesBoundEachWayIn(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s, group := p.grouped(t)
	require.Equal(t, 3, s.publishes(3), "no rate is set")
	s.put(s.path(), "publishRate", "10/1h")
	lines := s.batchOf(7).body
	require.Equal(t, 7, strings.Count(lines, `"Status":201`), lines)
	s.delayed("1h", "later")
	require.Equal(t, 2, s.publishes(4))
	lines = s.batchOf(3).body
	require.Equal(t, 3, strings.Count(lines, `"Status":429`), lines)
	require.Contains(t, lines, "publish_rate_exceeded")
	bulk := s.bulk("application/x-ndjson", "{\"Payload\":\"row\"}\n")
	time.Sleep(100 * time.Millisecond)
	require.NotEqual(t, "DONE", s.bulkAt(bulk).State, "its row waits")
	s.put(s.path(), "publishRate", "")
	s.awaitBulk(bulk, "DONE")
	require.Equal(t, 2, s.publishes(2))

	s.put("/group/"+group, "publishRate", "3/1h")
	require.Equal(t, 3, s.publishes(5))
	s.put("/group/"+group, "publishRate", "none")
	s.put("/producer/p", "publishRate", "1/1h")
	require.Equal(t, 1, s.publishes(3))
	require.Contains(t, p.do("GET", "/metrics", "").body, `penstock_publish_rate_refused_total{of="producer"} 2`)
	s.put("/producer/p", "publishRate", "")
	require.Equal(t, 2, s.publishes(2))
}

// Two brokers share a rate. A wiped Redis starts to count anew, and without Redis each broker counts by itself and
// refuses nothing else.
func TestBrokersShareAPublishRateOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	a, b := w.start(), w.start()
	s, _ := a.grouped(t)
	s.put(s.path(), "publishRate", "20/1h")
	at := s.on(b)
	require.Equal(t, 15, s.publishes(15))
	require.Equal(t, 5, at.publishes(15))
	require.Zero(t, s.publishes(2))
	w.flushall()
	require.Equal(t, 20, at.publishes(15)+s.publishes(15))
	w.redis.Stop()
	require.Equal(t, 20, s.publishes(25))
	require.Equal(t, 20, at.publishes(25))
	require.Equal(t, http.StatusOK, a.do("GET", "/livez", "").status)
}

// A bulk takes the places of its rows, and a few more at its end.
func TestABulkLeavesThePublishRateToOthers(t *testing.T) {
	parallel(t)
	s, _ := embeddedWorld(t).start().grouped(t)
	s.put(s.path(), "publishRate", "100/1h")
	bulk := s.bulk("application/x-ndjson", strings.Repeat("{\"Payload\":\"row\"}\n", 24))
	require.EqualValues(t, 24, s.awaitBulk(bulk, "DONE").Published)
	require.GreaterOrEqual(t, s.publishes(100), 100-24-8)
	large := s.bulk("application/x-ndjson", "{\"Payload\":\"row\"}\n")
	s.put(s.path(), "publishRate", "")
	s.awaitBulk(large, "DONE")
}

// Behind its last row a bulk waits for no place: one with as many rows as there are places is done.
func TestABulkWaitsForNoPlaceBehindItsLastRow(t *testing.T) {
	parallel(t)
	s, _ := embeddedWorld(t).start().grouped(t)
	s.put(s.path(), "publishRate", "16/1h")
	bulk := s.bulk("application/x-ndjson", strings.Repeat("{\"Payload\":\"row\"}\n", 16)+"\n")
	require.EqualValues(t, 16, s.awaitBulk(bulk, "DONE").Published)
}
