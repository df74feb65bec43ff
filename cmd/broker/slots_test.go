package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// slots are the sums of a history.
func (p *process) slots(query string) (sum apitype.HistorySlot) {
	p.t.Helper()
	all := answered[apitype.HistoryRange](p.t, p, "GET", "/history"+query)
	for _, s := range all.Result {
		sum.Accepted += s.Accepted
		sum.Delivered += s.Delivered
		sum.Failed += s.Failed
		sum.Dead += s.Dead
		sum.OldestSeconds = max(sum.OldestSeconds, s.OldestSeconds)
		sum.AckP99 = max(sum.AckP99, s.AckP99)
		sum.DeliveryP50 = max(sum.DeliveryP50, s.DeliveryP50)
	}
	return sum
}

func (p *process) marks(query string) []apitype.HistoryMark {
	p.t.Helper()
	return answered[apitype.HistoryRange](p.t, p, "GET", "/history"+query).Marks
}

// awaitSlots waits until a broker has written what it counted, which it does each ten seconds.
func awaitSlots(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), what)
	}
}

func TestTheHistoryCountsFailuresAndDeadLetters(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w = w.with(quick...)
		p := w.start("BROKER_RETRY_BACKOFF=10ms")
		sink := newSink(t, func(int, received) int { return 500 })
		p.sample("k="+sink.URL, "pull")
		p.put("/channel/c/consumer/k", "maxRetries", "2")
		for range 3 {
			p.publish("m")
		}
		eventually(t, "the attempts", func() bool { return sink.count() == 9 })
		eventually(t, "a job", func() bool {
			jobs, _ := p.claim("pull", "limit=1")
			return len(jobs) == 1 && p.update("pull", map[string]any{"ID": jobs[0].ID, "Lease": jobs[0].Lease,
				"NextState": "DELIVERED"})[0].Status == 202
		})
		require.Zero(t, p.stop())
		p = w.start()
		k := p.slots("?channel=c&consumer=k")
		require.Equal(t, [4]int64{3, 0, 6, 3}, [4]int64{k.Accepted, k.Delivered, k.Failed, k.Dead})
		require.Positive(t, k.DeliveryP50)
		pull := p.slots("?channel=c&consumer=pull")
		require.Equal(t, [4]int64{3, 1, 0, 0}, [4]int64{pull.Accepted, pull.Delivered, pull.Failed, pull.Dead})
		require.Zero(t, pull.DeliveryP50)
		c := p.slots("?channel=c")
		require.Equal(t, [4]int64{3, 1, 6, 3}, [4]int64{c.Accepted, c.Delivered, c.Failed, c.Dead})
		require.Positive(t, c.AckP99)
	})
}

// The history of a whole cluster adds up with what was published and delivered: of two brokers, over stops,
// a kill and a wiped Redis, at each step.
func TestKillsChangeNothingOfTheHistoryThatIsWritten(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w = w.with(quick...)
		p := w.start()
		p.sample("pull")
		sink := newSink(t, func(int, received) int { return 200 })
		require.Equal(t, 201, p.put("/channel/c/consumer/push", "callbackUrl", sink.URL, "token", "t").status)
		brokers := []*process{p}
		if w.redis != nil {
			brokers = append(brokers, w.start())
		}
		published := 0
		publish := func(n int) {
			for i := range n {
				brokers[i%len(brokers)].publish("m")
				published++
			}
			eventually(t, "the deliveries", func() bool { return sink.count() >= published })
		}
		publish(20)
		for _, b := range brokers { // each writes what it has counted
			require.Zero(t, b.stop())
		}
		brokers[0] = w.start()
		if len(brokers) > 1 {
			brokers[1] = w.start()
		}
		p = brokers[0]
		check := func() {
			t.Helper()
			for _, step := range []string{"", "?step=1m", "?step=10m"} {
				all := p.slots(step)
				require.EqualValues(t, published, all.Accepted)
				require.EqualValues(t, published, all.Delivered)
				require.Positive(t, all.AckP99)
				require.Positive(t, all.DeliveryP50)
			}
			for query, delivered := range map[string]int{"?channel=c&consumer=push": published,
				"?channel=c&consumer=pull": 0, "?channel=c": published} {
				one := p.slots(query)
				require.EqualValues(t, published, one.Accepted, query)
				require.EqualValues(t, delivered, one.Delivered, query)
				require.Zero(t, one.Failed+one.Dead, query)
			}
		}
		check()
		publish(10)
		if w.redis != nil {
			w.flushall()
		}
		awaitSlots(t, "ten seconds are over", func() bool {
			all := p.slots("")
			return all.Accepted == int64(published) && all.Delivered == int64(published)
		})
		awaitSlots(t, "how long jobs wait", func() bool {
			return p.slots("?channel=c&consumer=pull").OldestSeconds > 0
		})
		for _, b := range brokers {
			b.kill()
		}
		p = w.start()
		check()
		kinds := map[string]int{}
		for _, m := range p.marks("") {
			kinds[m.Kind]++
		}
		require.Equal(t, map[string]int{"start": 2*len(brokers) + 1, "version": 1}, kinds)
		require.Equal(t, 200, p.put("/channel/c/consumer/push", "maxRetries", "2").status)
		marks := p.marks("?channel=c&consumer=push")
		last := marks[len(marks)-1]
		require.Equal(t, [2]string{"policy", "The policy of the consumer push of the channel c changed: maxRetries."},
			[2]string{last.Kind, last.Text})
	})
}
