package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// fill publishes n messages to channel c.
func (p *process) fill(n int) {
	p.t.Helper()
	for _, r := range p.batch(strings.Split(strings.Repeat(`{"Payload":"x"}`+"\n", n), "\n")...) {
		require.Equal(p.t, 201, r.Status, r.Detail)
	}
}

// claimAll is claim with the whole answer.
func (p *process) claimAll(consumer, query string) (apitype.ClaimedJobs, reply) {
	p.t.Helper()
	r := p.do("POST", "/channel/c/consumer/"+consumer+"/claim?"+query, "", consumerTokens(consumer)...)
	t, ok := p.t.(*testing.T)
	require.True(p.t, ok)
	return claimedIn(t, r), r
}

// requireWhy requires an empty answer with a reason, "" for none.
func requireWhy(t *testing.T, why string, got apitype.ClaimedJobs, r reply) {
	t.Helper()
	require.Empty(t, got.Result)
	require.Equal(t, why, got.Why)
	require.Equal(t, why, r.header.Get("X-Broker-Why"))
}

// A worker that runs until the backlog is empty reads it: it is what is left, or it is not there.
func TestTheBacklogCountsWhatIsOutsideTheWindowToo(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		const all, most = 1000, 50
		p := w.with("BROKER_RATIONAL_DELAY=500ms").start("BROKER_QUEUE_WINDOW=100")
		p.sample("k")
		p.fill(all)
		for left := all; left > 0; {
			got, r := p.claimAll("k", fmt.Sprintf("limit=%d&timeout=600&wait=1", most))
			left -= len(got.Result)
			if backlog := r.header.Get("X-Broker-Backlog"); backlog != "" {
				require.Equal(t, strconv.Itoa(left), backlog)
			}
			if len(got.Result) == 0 {
				requireWhy(t, "loading", got, r)
			} else {
				require.Empty(t, got.Why)
				require.Empty(t, r.header.Get("X-Broker-Why"))
			}
		}
		eventually(t, "the backlog to be known", func() bool {
			_, r := p.claimAll("k", "")
			return r.header.Get("X-Broker-Backlog") == "0"
		})
		got, r := p.claimAll("k", "")
		requireWhy(t, "", got, r)
	})
}

func TestAnEmptyClaimSaysWhy(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		p.sample("k")
		got, r := p.claimAll("k", "")
		requireWhy(t, "", got, r)
		require.Equal(t, "0", r.header.Get("X-Broker-Backlog"), "a new consumer has none")
		p.fill(2)
		for field, limit := range map[string]string{"concurrency": "1", "rateLimit": "1/1h"} {
			p.put("/channel/c/consumer/"+field, "token", field+"-token", "type", "pull", field, limit)
			p.fill(2)
			first, r := p.claimAll(field, "wait=20&limit=1&timeout=600")
			require.Len(t, first.Result, 1)
			require.Empty(t, first.Why)
			eventually(t, "the second one", func() bool { return len(p.queued(field)) == 1 })
			eventually(t, "the count of what waits", func() bool {
				got, r = p.claimAll(field, "")
				requireWhy(t, "limited", got, r)
				return r.header.Get("X-Broker-Backlog") != ""
			})
			require.Equal(t, "1", r.header.Get("X-Broker-Backlog"))
			require.NotEmpty(t, r.header.Get("Retry-After"))
		}
		eventually(t, "six jobs", func() bool { return len(p.queued("k")) == 6 })
		require.Equal(t, 200, p.do("POST", "/channel/c/consumer/k/pause", "").status)
		eventually(t, "the count of what waits", func() bool {
			got, r = p.claimAll("k", "")
			requireWhy(t, "paused", got, r)
			return r.header.Get("X-Broker-Backlog") != ""
		})
		require.Equal(t, "6", r.header.Get("X-Broker-Backlog"))
		require.Equal(t, 200, p.do("POST", "/channel/c/consumer/k/resume", "").status)
		got, _ = p.claimAll("k", "wait=20")
		require.Len(t, got.Result, 6)
		eventually(t, "that nothing waits", func() bool {
			got, r = p.claimAll("k", "")
			require.Empty(t, got.Result)
			return r.header.Get("X-Broker-Backlog") == "0"
		})
	})
}

// While a scan of the store brings back what Redis has lost, nobody is told that there is less.
func TestNothingIsCountedAsGoneWhileItIsLoaded(t *testing.T) {
	parallel(t)
	const all = 700
	watch := func(t *testing.T, p *process) {
		t.Helper()
		s := &stage{process: p.in(t), channel: "c"}
		for loaded := false; !loaded; {
			k := s.counted("k")
			require.Equal(t, all, *k.Queued)
			require.NotNil(t, k.OldestQueuedAt)
			page := s.page("k", "/channel/c/consumer/k/queued-jobs")
			if loaded = len(page.Result) > 0; !loaded {
				require.Equal(t, "loading", page.Why, "%v", page)
				continue
			}
			require.Empty(t, page.Why)
		}
		left := all
		for left > 0 {
			got, r := p.claimAll("k", "limit=500&timeout=600")
			left -= len(got.Result)
			if backlog := r.header.Get("X-Broker-Backlog"); backlog != "" {
				require.Equal(t, strconv.Itoa(left), backlog)
			}
			if len(got.Result) == 0 {
				requireWhy(t, "loading", got, r)
			}
		}
		eventually(t, "the count of what is in flight", func() bool {
			k := s.counted("k")
			return *k.Queued == 0 && *k.InFlight == all
		})
	}
	t.Run("restart, embedded", func(t *testing.T) {
		parallel(t)
		w := embeddedWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_QUEUE_WINDOW=200")
		p := w.start()
		p.sample("k")
		p.fill(all)
		p.kill()
		watch(t, w.start())
	})
	t.Run("FLUSHALL, real servers", func(t *testing.T) {
		parallel(t)
		w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_QUEUE_WINDOW=200")
		p := w.start()
		p.sample("k")
		p.fill(all)
		w.flushall()
		watch(t, p.in(t))
	})
}

// What was delivered shortly before a start stands before the rest in the store, and is no reason to
// think that there is no more.
func TestFaultDeliveriesBeforeAKillHideNoneOfTheBacklog(t *testing.T) {
	parallel(t)
	const all, done = 1800, 1500
	w := embeddedWorld(t).with("BROKER_RATIONAL_DELAY=500ms")
	p := w.start()
	p.sample("k")
	p.fill(all)
	for left := done; left > 0; {
		got, _ := p.claimAll("k", fmt.Sprintf("wait=5&limit=%d", min(left, 500)))
		updates := make([]map[string]any, len(got.Result))
		for i, j := range got.Result {
			updates[i] = map[string]any{"ID": j.ID, "Lease": j.Lease, "NextState": "DELIVERED"}
		}
		for _, r := range p.update("k", updates...) {
			require.Equal(t, 202, r.Status)
		}
		left -= len(got.Result)
	}
	p.kill()
	p = w.start()
	for left := all - done; left > 0; {
		got, r := p.claimAll("k", "limit=50&timeout=600")
		left -= len(got.Result)
		if backlog := r.header.Get("X-Broker-Backlog"); backlog != "" {
			require.Equal(t, strconv.Itoa(left), backlog)
		}
		if len(got.Result) == 0 {
			requireWhy(t, "loading", got, r)
		}
	}
}

// Jobs that are too old for a worker hide none of those behind them: an empty answer without a reason
// still means that there is nothing to do.
func TestJobsThatArePassedOverHideNoOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		p.sample("k")
		for _, r := range p.batch(strings.Split(strings.Repeat(`{"Payload":"old","Priority":9,"TTL":"100ms"}`+"\n", 60)+
			strings.Repeat(`{"Payload":"due"}`+"\n", 3), "\n")...) {
			require.Equal(t, 201, r.Status, r.Detail)
		}
		time.Sleep(150 * time.Millisecond) // the ages, not an event
		for due := 0; due < 3; {
			got, r := p.claimAll("k", "limit=2&timeout=600")
			due += len(got.Result)
			for _, j := range got.Result {
				require.Equal(t, "due", j.Message.Payload)
			}
			if len(got.Result) == 0 {
				requireWhy(t, "loading", got, r)
				require.NotEmpty(t, r.header.Get("Retry-After"))
			}
		}
	})
}

// A worker that begins with a replay does not end before its first job has come.
func TestAReplayThatIsLoadedSaysSo(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start(quick...)
		s := p.stage(t, "k")
		job := s.newJob("k")
		s.claim("k", job)
		require.Equal(t, 202, s.move("k", job, to("DELIVERED")).status)
		eventually(t, "a message of the past", func() bool {
			_, r := s.claimOf("k")
			return r.header.Get("X-Broker-Backlog") == "0"
		})
		s.replay("k", everSince)
		for {
			got, r := s.claimOf("k")
			if len(got.Result) > 0 {
				require.NotEmpty(t, got.Result[0].Replay)
				return
			}
			requireWhy(t, "loading", got, r)
		}
	})
}

// claimOf claims jobs of a consumer of the stage.
func (s *stage) claimOf(consumer string) (got apitype.ClaimedJobs, r reply) {
	s.t.Helper()
	r = s.do("POST", s.path("/consumer/", consumer, "/claim"), "", consumerTokens(consumer)...)
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &got))
	return got, r
}

// What a producer was told is stored, a worker is told of: the claim after a 201 gets the job, and a
// number says how many are left, or there is none.
func TestAClaimRightAfterAPublishFindsItsJob(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		p.sample("k", "listed")
		for range 200 {
			p.publish("x")
			for {
				got, r := p.claimAll("k", "timeout=600")
				if len(got.Result) > 0 {
					break
				}
				requireWhy(t, "loading", got, r)
			}
		}
		p.fill(50)
		got, r := p.claimAll("k", "timeout=600&limit=10")
		if backlog := r.header.Get("X-Broker-Backlog"); backlog != "" {
			require.Equal(t, strconv.Itoa(50-len(got.Result)), backlog)
		}
	})
}
