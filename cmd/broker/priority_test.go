package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// mixed publishes n messages whose body is "<priority>/<number>", numbered in
// the order in which they were acknowledged.
func mixed(s []*stage, n int, priority func(i int) int) []string {
	s[0].t.Helper()
	var bodies []string
	for i := range n {
		body := fmt.Sprintf("%d/%03d", priority(i), i)
		s[i%len(s)].publish(body, "X-Broker-Message-Priority", strconv.Itoa(priority(i)))
		bodies = append(bodies, body)
	}
	return bodies
}

// inOrder sorts bodies as they should be delivered.
func inOrder(bodies []string) []string {
	sorted := slices.Clone(bodies)
	slices.SortStableFunc(sorted, func(a, b string) int { return priorityOf(b) - priorityOf(a) })
	return sorted
}

func priorityOf(body string) int {
	text, _, _ := strings.Cut(body, "/")
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// takeNext removes body from those that are left, in order, and requires that it
// was its turn: its priority is the highest left, and none of the same priority is older.
func takeNext(t *testing.T, left []string, body string) []string {
	t.Helper()
	i := slices.Index(left, body)
	require.GreaterOrEqual(t, i, 0, "%s came twice or was never sent", body)
	require.Equal(t, priorityOf(left[0]), priorityOf(body), "%s came before %s", body, left[0])
	require.Zero(t, i, "%s came before %v", body, left[:i])
	return slices.Delete(left, i, i+1)
}

// A backlog many times the window of Redis, with mixed priorities, is drained
// highest priority first and oldest first inside a priority; what is published
// meanwhile takes its place.
func TestPriorityHoldsBeyondTheWindowForPull(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_QUEUE_WINDOW=50", "BROKER_RATIONAL_DELAY=500ms")
		s := p.stage(t, "k")
		left := inOrder(mixed([]*stage{s}, 300, func(i int) int { return i * 7 % 5 }))
		take := func() string {
			var j apitype.QueuedJob
			eventually(t, fmt.Sprintf("the next of %d jobs", len(left)), func() bool {
				jobs := s.queued("k", "limit=1")
				if len(jobs) == 0 {
					return false // it is being fetched from the store
				}
				j = jobs[0]
				return true
			})
			s.claim("k", j.ID)
			require.Equal(t, 202, s.move("k", j.ID, to("DELIVERED")).status)
			return j.Message.Payload
		}
		for i := 0; len(left) > 0; i++ {
			if i == 20 || i == 150 {
				s.publish("1023/late", "X-Broker-Message-Priority", "1023")
				left = append([]string{"1023/late"}, left...)
				eventually(t, "the urgent one", func() bool {
					jobs := s.queued("k", "limit=1")
					return len(jobs) == 1 && jobs[0].Priority == 1023
				})
			}
			left = takeNext(t, left, take())
		}
		require.Empty(t, s.queued("k", ""))
	})
}

// A window that a quick consumer has emptied is no sign that the store has no more: newer and less
// urgent jobs wait for what was spilled a moment ago, and order inside a priority holds.
func TestPriorityHoldsBehindAWindowThatWasEmptiedAtOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_QUEUE_WINDOW=50", "BROKER_RATIONAL_DELAY=1s")
		s := p.stage(t, "k")
		want := mixed([]*stage{s}, 200, func(int) int { return 9 })
		emptied := false
		var got []string
		eventually(t, "all jobs", func() bool {
			var page apitype.ClaimedJobs
			require.NoError(t, json.Unmarshal([]byte(s.claimWith("?limit=500&timeout=600", "", "").body), &page))
			for _, j := range page.Result {
				got = append(got, j.Message.Payload)
			}
			if !emptied && len(got) >= 50 {
				emptied = true
				want = append(want, mixed([]*stage{s}, 3, func(int) int { return 0 })...)
			}
			return len(got) == 203
		})
		left := want
		for _, body := range got {
			left = takeNext(t, left, body)
		}
	})
}

// The same for a push consumer that takes one delivery at a time.
func TestPriorityHoldsBeyondTheWindowForPush(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_QUEUE_WINDOW=50", "BROKER_CONSUMER_CONCURRENCY=1", "BROKER_RATIONAL_DELAY=500ms")
		s := p.stage(t)
		release := make(chan struct{})
		sink := newSink(t, func(n int, _ received) int {
			if n == 1 {
				<-release
			}
			return 204
		})
		t.Cleanup(sync.OnceFunc(func() {
			select {
			case <-release:
			default:
				close(release)
			}
		}))
		s.join("k=" + sink.URL)
		s.publish("0/occupied")
		eventually(t, "the consumer to be busy", func() bool { return sink.count() == 1 })
		bodies := mixed([]*stage{s}, 200, func(i int) int { return i * 3 % 4 })
		close(release)
		eventually(t, "all", func() bool { return sink.count() == 201 })
		left := append([]string{"0/occupied"}, inOrder(bodies)...)
		for _, r := range sink.all() {
			left = takeNext(t, left, r.body)
		}
	})
}

// Two brokers that take one delivery at a time: when a message arrives, nothing
// more urgent is left behind, save what the other broker holds in its hand.
func TestPriorityIsStrictAcrossBrokersForPushOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_CONSUMER_CONCURRENCY=1", "BROKER_RATIONAL_DELAY=500ms")
	a, b := w.start(), w.start()
	s := a.stage(t, "k") // a pull consumer lets the backlog grow
	bodies := mixed([]*stage{s, s.on(b)}, 120, func(i int) int { return i * 11 % 6 })
	eventually(t, "the backlog to be queued", func() bool {
		return len(walkPages(s, "k", 100, func([]apitype.QueuedJob) {})) == 120
	})
	sink := newSink(t, nil)
	s.put(s.path("/consumer/k"), "type", "push", "callbackUrl", sink.URL)
	eventually(t, "all", func() bool { return sink.count() == len(bodies) })
	left := map[string]bool{}
	for _, body := range bodies {
		left[body] = true
	}
	for i, r := range sink.all() {
		delete(left, r.body)
		ahead := 0
		for body := range left {
			if priorityOf(body) > priorityOf(r.body) {
				ahead++
			}
		}
		require.LessOrEqual(t, ahead, 1, "arrival %d, %s", i, r.body)
	}
	require.Empty(t, left)
}

// Both brokers list the same order, whoever took the messages.
func TestPriorityIsStrictAcrossBrokersForPullOnRealServers(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms")
	a, b := w.start(), w.start()
	s := a.stage(t, "k")
	both := []*stage{s, s.on(b)}
	bodies := mixed(both, 60, func(i int) int { return i * 5 % 7 })
	s.awaitQueued("k", len(bodies))
	for turn := 0; len(bodies) > 0; turn++ {
		here, there := both[turn%2], both[1-turn%2]
		list, same := here.queued("k", "limit=100"), there.queued("k", "limit=100")
		require.Len(t, list, len(bodies))
		for i := range list {
			require.Equal(t, list[i].ID, same[i].ID)
			require.True(t, i == 0 || list[i-1].Priority >= list[i].Priority)
		}
		if turn == 3 {
			there.publish("999/late", "X-Broker-Message-Priority", "999")
			bodies = append(bodies, "999/late")
			eventually(t, "the late one on top", func() bool { return here.queued("k", "limit=1")[0].Priority == 999 })
			continue
		}
		here.claim("k", list[0].ID)
		require.Empty(t, there.move("k", list[0].ID, to("INFLIGHT")).header.Get("X-Broker-Lease"),
			"it is taken on all brokers")
		require.Equal(t, 202, there.move("k", list[0].ID, to("DELIVERED")).status, "any broker takes the report")
		bodies = slices.DeleteFunc(bodies, func(s string) bool { return s == list[0].Message.Payload })
		if turn > 12 {
			break
		}
	}
}

// One late urgent message against a backlog of a busy consumer.
func TestPriorityOvertakesABacklogOfABusyConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_CONSUMER_CONCURRENCY=1", "BROKER_RATIONAL_DELAY=500ms")
		s := p.stage(t)
		step := make(chan struct{})
		defer close(step)
		sink := newSink(t, func(int, received) int { <-step; return 204 })
		s.join("k=" + sink.URL)
		for i := range 100 {
			s.publish(fmt.Sprintf("1/%03d", i), "X-Broker-Message-Priority", "1")
		}
		eventually(t, "the first delivery", func() bool { return sink.count() == 1 })
		urgent := s.publish("5/urgent", "X-Broker-Message-Priority", "5")
		eventually(t, "the urgent one to be queued", func() bool { return s.message(urgent).Status == "DISPATCHED" })
		step <- struct{}{}
		eventually(t, "the second delivery", func() bool { return sink.count() == 2 })
		require.Equal(t, "5/urgent", sink.all()[1].body)
	})
}

// However much less urgent work fills the window, more urgent work gets in.
func TestPriorityAWindowFullOfLessUrgentJobsKeepsNobodyOut(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_QUEUE_WINDOW=20", "BROKER_RATIONAL_DELAY=500ms")
		s := p.stage(t, "k")
		left := inOrder(mixed([]*stage{s}, 150, func(i int) int { return i / 30 }))
		eventually(t, "the most urgent ones to have come through the fan-out", func() bool {
			jobs := s.queued("k", "limit=1")
			return len(jobs) == 1 && priorityOf(jobs[0].Message.Payload) == 4
		})
		for len(left) > 0 {
			var jobs []apitype.QueuedJob
			eventually(t, left[0], func() bool { jobs = s.queued("k", "limit=1"); return len(jobs) == 1 })
			left = takeNext(t, left, jobs[0].Message.Payload)
			s.claim("k", jobs[0].ID)
			require.Equal(t, 202, s.move("k", jobs[0].ID, to("DELIVERED")).status)
		}
	})
}
