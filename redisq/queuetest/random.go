package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// walker drives a queue, as two brokers, and the model side by side.
type walker struct {
	s       Server
	m       *model
	brokers []*redisq.Queue
	fresh   int                   // IDs from here on were never used
	tokens  map[ident.ID][]string // every token a job ever had
}

// randomOperations runs random operations and compares every answer, and after
// each operation where every job stands, with the model.
func randomOperations(t *testing.T, s Server) {
	rapid.Check(t, func(rt *rapid.T) {
		s.Flush()
		window := rapid.IntRange(1, 8).Draw(rt, "window")
		w := &walker{
			s: s, m: newModel(window), tokens: map[ident.ID][]string{},
			brokers: []*redisq.Queue{s.Queue(window), s.Queue(window)},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":           w.compare,
			"fresh":      w.enqueueFresh,
			"offer":      w.offer,
			"late":       w.enqueueLate,
			"again":      w.enqueueAgain,
			"claim":      w.claim,
			"claim each": w.claimEach,
			"extend":     w.extend,
			"hold":       w.hold,
			"nack":       w.nack,
			"release":    w.release,
			"ack":        w.ack,
			"reclaim":    w.reclaim,
			"peek":       w.peek,
			"spilled":    w.spilled,
			"lose":       w.lose,
		})
	})
}

var durations = rapid.SampledFrom([]time.Duration{time.Millisecond, never, never})

// begin chooses the broker for a step.
func (w *walker) begin(rt *rapid.T) *redisq.Queue {
	return w.brokers[rapid.IntRange(0, 1).Draw(rt, "broker")]
}

// end lets what is short end.
func (w *walker) end() {
	w.s.Advance(2 * time.Millisecond)
	w.m.now += stepTime
}

// known draws the ID of a job that exists or did.
func (w *walker) known(rt *rapid.T) ident.ID { return at(rapid.IntRange(0, w.fresh).Draw(rt, "job")) }

func (w *walker) drawJob(rt *rapid.T, id ident.ID) redisq.Job {
	return redisq.Job{
		ID:       id,
		Priority: rapid.SampledFrom([]int{0, 1, 2, 1023}).Draw(rt, "priority"),
		Delay:    rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, never}).Draw(rt, "delay"),
		Attempts: rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "attempts"),
	}
}

func (w *walker) enqueueFresh(rt *rapid.T) {
	plain := rapid.Bool().Draw(rt, "plain")
	var js []redisq.Job
	for range rapid.IntRange(1, 6).Draw(rt, "n") {
		j := w.drawJob(rt, at(w.fresh))
		if plain {
			j.Delay, j.Attempts = 0, 0
		}
		js = append(js, j)
		w.fresh++
	}
	got, err := w.begin(rt).Enqueue(context.Background(), consumer, js, redisq.Fresh)
	require.NoError(rt, err)
	require.Equal(rt, w.m.enqueue(js, redisq.Fresh), got)
	w.end()
}

// offer offers fresh jobs that may be leased at once. One may be named twice, or may
// have come another way.
func (w *walker) offer(rt *rapid.T) {
	lease := rapid.SampledFrom([]time.Duration{0, time.Millisecond, never, never}).Draw(rt, "lease")
	priority := rapid.SampledFrom([]int{0, 1, 1023}).Draw(rt, "priority")
	var js []redisq.Job
	for range rapid.IntRange(1, 6).Draw(rt, "n") {
		js = append(js, redisq.Job{ID: at(w.fresh), Priority: priority})
		w.fresh++
	}
	switch id := w.known(rt); rapid.IntRange(0, 5).Draw(rt, "twist") {
	case 0:
		js = append(js, js[0])
	case 1:
		if id.Millis() <= w.m.brought {
			js = append(js, redisq.Job{ID: id, Priority: priority})
		}
	}
	got, errs := w.begin(rt).EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js, Lease: lease}})
	require.NoError(rt, errs[0])
	want, leased := w.m.offer(js, lease)
	require.Len(rt, got[0].Leases, len(leased))
	for i, j := range leased {
		w.leased(rt, j, got[0].Leases[i])
	}
	require.Equal(rt, []int{want.Added, want.Known, want.Spilled}, []int{got[0].Added, got[0].Known, got[0].Spilled})
	w.end()
}

// enqueueLate offers jobs as fresh that may have come another way meanwhile, and
// may be over.
func (w *walker) enqueueLate(rt *rapid.T) {
	var js []redisq.Job
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		if id := w.known(rt); id.Millis() <= w.m.brought {
			js = append(js, redisq.Job{ID: id, Priority: 1})
		}
	}
	w.fresh++
	got, errs := w.begin(rt).EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js}})
	require.NoError(rt, errs[0])
	want := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1, Epoch: got[0].Epoch}
	if len(js) > 0 {
		want = w.m.enqueue(js, redisq.Fresh)
		want.Epoch = got[0].Epoch
	}
	require.Equal(rt, want, got[0])
	w.end()
}

func (w *walker) enqueueAgain(rt *rapid.T) {
	src := rapid.SampledFrom([]redisq.Source{redisq.Repeated, redisq.Recovered}).Draw(rt, "source")
	var js []redisq.Job
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		js = append(js, w.drawJob(rt, w.known(rt)))
	}
	w.fresh++ // the last may have been used just now
	got, err := w.begin(rt).Enqueue(context.Background(), consumer, js, src)
	require.NoError(rt, err)
	require.Equal(rt, w.m.enqueue(js, src), got)
	w.end()
}

// leased compares a lease with the model's and remembers its token.
func (w *walker) leased(rt *rapid.T, j *modelJob, l redisq.Lease) {
	require.Equal(rt, redisq.Lease{ID: j.id, Priority: j.priority, Attempt: j.attempts, Flags: j.flags, Token: l.Token}, l)
	require.NotContains(rt, w.tokens[l.ID], l.Token)
	require.NotEmpty(rt, l.Token)
	j.token = l.Token
	w.tokens[l.ID] = append(w.tokens[l.ID], l.Token)
}

func (w *walker) claim(rt *rapid.T) {
	n, lease := rapid.IntRange(0, 6).Draw(rt, "n"), durations.Draw(rt, "lease")
	got, err := w.begin(rt).Claim(context.Background(), consumer, n, lease)
	require.NoError(rt, err)
	want := w.m.claim(n, lease)
	require.Len(rt, got.Leases, len(want))
	for i, j := range want {
		w.leased(rt, j, got.Leases[i])
	}
	require.Len(rt, w.m.in(redisq.Ready), got.Ready)
	require.Equal(rt, w.m.spilled >= 0, got.Spilled)
	require.Equal(rt, len(w.m.in(redisq.Delayed))+len(w.m.in(redisq.Leased)) > 0, got.NextDue > 0)
	w.end()
}

func (w *walker) claimEach(rt *rapid.T) {
	var wishes []redisq.Wish
	for range rapid.IntRange(1, 4).Draw(rt, "n") {
		wishes = append(wishes, redisq.Wish{Job: w.drawJob(rt, w.known(rt)), Lease: durations.Draw(rt, "lease"), Insert: rapid.Bool().Draw(rt, "insert")})
	}
	w.fresh++
	got, err := w.begin(rt).ClaimEach(context.Background(), consumer, wishes)
	require.NoError(rt, err)
	require.Len(rt, got, len(wishes))
	for i, wish := range wishes {
		want, state := w.m.claimOne(wish.Job, wish.Lease, wish.Insert)
		require.Equal(rt, state, got[i].Before.State)
		if want == nil {
			require.Zero(rt, got[i].Lease)
		} else {
			w.leased(rt, want, got[i].Lease)
		}
	}
	w.end()
}

// drawLeases draws leases, current and long lost.
func (w *walker) drawLeases(rt *rapid.T) []redisq.Lease {
	var out []redisq.Lease
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		id := w.known(rt)
		if leased := w.m.in(redisq.Leased); len(leased) > 0 && rapid.Bool().Draw(rt, "current") {
			id = leased[rapid.IntRange(0, len(leased)-1).Draw(rt, "lease")].id
		}
		token := "none"
		if all := w.tokens[id]; len(all) > 0 {
			token = all[len(all)-1-rapid.IntRange(0, min(1, len(all)-1)).Draw(rt, "age")]
		}
		out = append(out, redisq.Lease{ID: id, Token: token})
	}
	return out
}

func (w *walker) extend(rt *rapid.T) {
	leases, lease := w.drawLeases(rt), durations.Draw(rt, "lease")
	got, err := w.begin(rt).Extend(context.Background(), consumer, leases, lease)
	require.NoError(rt, err)
	for i, l := range leases {
		j := w.m.held(l.ID, l.Token)
		require.Equal(rt, j != nil, got[i])
		if j != nil {
			j.at = w.m.now + logical(lease)
		}
	}
	w.end()
}

// hold asks for leases back, in whatever state their jobs are: attempts that are
// higher than what Redis knows, and that are not.
func (w *walker) hold(rt *rapid.T) {
	lease := durations.Draw(rt, "lease")
	var leases []redisq.Lease
	for _, l := range w.drawLeases(rt) {
		if j := w.m.jobs[l.ID]; j != nil { // a job keeps its priority
			l.Priority = j.priority
		}
		if l.Token == "none" {
			l.Token += l.ID.String()
		}
		l.Attempt = rapid.IntRange(1, 3).Draw(rt, "attempt")
		leases = append(leases, l)
	}
	w.fresh++
	got, err := w.begin(rt).Hold(context.Background(), consumer, leases, lease)
	require.NoError(rt, err)
	seen := map[ident.ID]bool{}
	for i, l := range leases {
		require.Equal(rt, !seen[l.ID] && w.m.hold(l, lease), got[i])
		seen[l.ID] = true
	}
	w.end()
}

func (w *walker) nack(rt *rapid.T) {
	leases := w.drawLeases(rt)
	var delays []time.Duration
	for range leases {
		delays = append(delays, rapid.SampledFrom([]time.Duration{-1, 0, time.Millisecond, never}).Draw(rt, "delay"))
	}
	got, err := w.begin(rt).Nack(context.Background(), consumer, leases, delays)
	require.NoError(rt, err)
	for i, l := range leases {
		j := w.m.held(l.ID, l.Token)
		require.Equal(rt, j != nil, got[i])
		if j != nil {
			w.m.nack(j, delays[i])
		}
	}
	w.end()
}

func (w *walker) release(rt *rapid.T) {
	leases := w.drawLeases(rt)
	got, err := w.begin(rt).Release(context.Background(), consumer, leases)
	require.NoError(rt, err)
	for i, l := range leases {
		j := w.m.held(l.ID, l.Token)
		require.Equal(rt, j != nil, got[i])
		if j != nil {
			w.m.release(j)
		}
	}
	w.end()
}

func (w *walker) ack(rt *rapid.T) {
	var ids []ident.ID
	for range rapid.IntRange(1, 4).Draw(rt, "n") {
		ids = append(ids, w.known(rt))
	}
	got, err := w.begin(rt).Ack(context.Background(), consumer, ids)
	require.NoError(rt, err)
	before := len(w.m.jobs)
	for _, id := range ids {
		delete(w.m.jobs, id)
	}
	require.Equal(rt, before-len(w.m.jobs), got)
	w.end()
}

func (w *walker) reclaim(rt *rapid.T) {
	most := rapid.IntRange(0, 4).Draw(rt, "max attempts")
	got, err := w.begin(rt).Reclaim(context.Background(), consumer, redisq.MaxBatch, most)
	require.NoError(rt, err)
	returned, exhausted := w.m.reclaim(most)
	var ids []ident.ID
	for _, j := range returned {
		ids = append(ids, j.id)
	}
	require.ElementsMatch(rt, ids, got.Returned)
	require.Len(rt, got.Exhausted, len(exhausted))
	for _, l := range got.Exhausted {
		w.leased(rt, w.m.jobs[l.ID], l)
	}
	require.Equal(rt, len(w.m.jobs) == 0, got.Empty)
	w.end()
}

func (w *walker) peek(rt *rapid.T) {
	ctx := context.Background()
	q := w.begin(rt)
	size := rapid.IntRange(1, 4).Draw(rt, "size")
	w.m.promote()
	var after *redisq.Cursor
	for want := w.m.visible(); ; {
		got, err := q.Peek(ctx, consumer, after, size)
		require.NoError(rt, err)
		require.Len(rt, got, min(size, len(want)))
		for i, got := range got {
			j := want[i]
			require.Equal(rt, redisq.Waiting{ID: j.id, Priority: j.priority, Attempts: j.attempts, Flags: j.flags, Score: got.Score}, got)
			after = &redisq.Cursor{Score: got.Score, ID: got.ID}
		}
		if want = want[len(got):]; len(got) == 0 {
			break
		}
	}
	w.end()
}

func (w *walker) spilled(rt *rapid.T) {
	priority := rapid.SampledFrom([]int{-1, -1, 0, 1}).Draw(rt, "priority")
	require.NoError(rt, w.begin(rt).SetSpilled(context.Background(), consumer, priority))
	w.m.spilled = priority
	w.end()
}

// lose empties Redis, or changes the epoch under the brokers.
func (w *walker) lose(rt *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(rt, "loss") {
	case 0:
		w.s.Flush()
		w.m.jobs, w.m.spilled, w.m.brought = map[ident.ID]*modelJob{}, -1, 0
	case 1:
		require.NoError(rt, w.begin(rt).Renew(context.Background(), consumer))
	default: // losses are rare
	}
	w.end()
}

// compare checks the live keys and where every job stands.
func (w *walker) compare(rt *rapid.T) {
	q := w.brokers[0]
	ids := make([]ident.ID, w.fresh+1)
	for i := range ids {
		ids[i] = at(i)
	}
	got, err := q.Probe(context.Background(), consumer, ids)
	require.NoError(rt, err)
	for i, id := range ids {
		want := redisq.Standing{At: got[i].At}
		if j := w.m.jobs[id]; j != nil {
			want = redisq.Standing{State: j.state, Priority: j.priority, Attempts: j.attempts, Flags: j.flags, Token: j.token, At: got[i].At}
		}
		require.Equal(rt, want, got[i], "job %d", i)
	}
	check(rt, w.s, q)
}
