package queuetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// walker runs the same operations on a queue, as two brokers, and on the model. The model has
// logical time: a short delay or lease ends between two steps, and never has no end.
type walker struct {
	s       Server
	m       *queuemodel.Consumer
	now     int64 // of the model, Unix ms
	window  int
	brokers []*redisq.Queue
	fresh   int                   // number of the first unused ID
	tokens  map[ident.ID][]string // every token a job ever had
}

// randomOperations runs random operations. It compares every result with the model, and after
// each operation the state of every job.
func randomOperations(t *testing.T, s Server) {
	rapid.Check(t, func(rt *rapid.T) {
		s.Flush()
		window := rapid.IntRange(1, 8).Draw(rt, "window")
		w := &walker{
			s: s, m: queuemodel.New(), now: begin, window: window, tokens: map[ident.ID][]string{},
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
			"restore":    w.restoreLeases,
			"nack":       w.nack,
			"give back":  w.giveBack,
			"release":    w.release,
			"hasten":     w.hasten,
			"ack":        w.ack,
			"ack leases": w.ackLeases,
			"reclaim":    w.reclaim,
			"peek":       w.peek,
			"spilled":    w.spilled,
			"lose":       w.lose,
		})
	})
}

// Times of the model, ms. begin is later than the time in every ID of the test. A test ends
// before any time limit of the scripts themselves.
const (
	begin    = 1 << 41
	stepTime = 2
)

var durations = rapid.SampledFrom([]time.Duration{time.Millisecond, never, never})

// begin chooses the broker for a step.
func (w *walker) begin(rt *rapid.T) *redisq.Queue {
	return w.brokers[rapid.IntRange(0, 1).Draw(rt, "broker")]
}

// end waits for the end of short delays and leases.
func (w *walker) end() {
	w.s.Advance(stepTime * time.Millisecond)
	w.now += stepTime
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
	require.Equal(rt, w.m.Enqueue(w.now, w.window, js, redisq.Fresh), got)
	w.end()
}

// offer offers fresh jobs that may be leased at once. A job may be named twice, or may
// already be added by another call.
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
		if id.Millis() <= w.m.Brought {
			js = append(js, redisq.Job{ID: id, Priority: priority})
		}
	}
	batch := redisq.Batch{Consumer: consumer, Jobs: js, Lease: lease, Limits: drawLimits(rt)}
	got, errs := w.begin(rt).EnqueueMany(context.Background(), []redisq.Batch{batch})
	require.NoError(rt, errs[0])
	want := w.m.Offer(w.now, w.window, batch, redisq.Fresh)
	w.leased(rt, want.Leases, got[0].Leases)
	require.Equal(rt, []int{want.Added, want.Known, want.Spilled}, []int{got[0].Added, got[0].Known, got[0].Spilled})
	w.end()
}

// enqueueLate offers jobs as fresh that other calls may have added already, and that may be
// over.
func (w *walker) enqueueLate(rt *rapid.T) {
	var js []redisq.Job
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		if id := w.known(rt); id.Millis() <= w.m.Brought {
			js = append(js, redisq.Job{ID: id, Priority: 1})
		}
	}
	w.fresh++
	got, errs := w.begin(rt).EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js}})
	require.NoError(rt, errs[0])
	want := redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1, Epoch: got[0].Epoch}
	if len(js) > 0 {
		want = w.m.Enqueue(w.now, w.window, js, redisq.Fresh)
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
	w.fresh++ // this step may have used the last ID
	got, err := w.begin(rt).Enqueue(context.Background(), consumer, js, src)
	require.NoError(rt, err)
	require.Equal(rt, w.m.Enqueue(w.now, w.window, js, src), got)
	w.end()
}

// leased compares leases with those of the model. It copies the tokens to the model, since
// their epoch is random.
func (w *walker) leased(rt *rapid.T, want, got []redisq.Lease) {
	require.Len(rt, got, len(want))
	for i, l := range got {
		want[i].Token = l.Token
		require.Equal(rt, want[i], l)
		require.NotContains(rt, w.tokens[l.ID], l.Token)
		require.NotEmpty(rt, l.Token)
		w.m.SetToken(l.ID, l.Token)
		w.tokens[l.ID] = append(w.tokens[l.ID], l.Token)
	}
}

// drawLimits draws limits without rates, whose buckets depend on the server's clock.
func drawLimits(rt *rapid.T) redisq.Limits {
	return redisq.Limits{
		Concurrency: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "concurrency"),
		RetryShare:  rapid.SampledFrom([]int{0, 0, 1, 50, 90, 100}).Draw(rt, "share"),
		Slots:       rapid.SampledFrom([]int{0, 0, 1, 4, 8}).Draw(rt, "slots"),
		Retrying:    rapid.IntRange(0, 4).Draw(rt, "retrying"),
		Worker:      drawWorker(rt),
	}
}

// drawWorker draws who gets a lease.
func drawWorker(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "billing-3;1.8.2", "a;"}).Draw(rt, "worker")
}

func (w *walker) claim(rt *rapid.T) {
	n, lease := rapid.IntRange(0, 6).Draw(rt, "n"), durations.Draw(rt, "lease")
	limits := drawLimits(rt)
	got, err := w.begin(rt).Claim(context.Background(), consumer, n, lease, limits)
	require.NoError(rt, err)
	want := w.m.Claim(w.now, w.window, n, lease, limits)
	w.leased(rt, want.Leases, got.Leases)
	require.Equal(rt, want.Ready, got.Ready)
	require.Equal(rt, want.Retries, got.Retries)
	require.Equal(rt, want.Limited, got.Limited)
	require.Equal(rt, want.Spilled, got.Spilled)
	require.Equal(rt, want.NextDue > 0, got.NextDue > 0)
	w.end()
}

func (w *walker) claimEach(rt *rapid.T) {
	var wishes []redisq.Wish
	limits := drawLimits(rt)
	for range rapid.IntRange(1, 4).Draw(rt, "n") {
		wishes = append(wishes, redisq.Wish{Job: w.drawJob(rt, w.known(rt)), Lease: durations.Draw(rt, "lease"),
			Insert: rapid.Bool().Draw(rt, "insert"), Limits: limits, Worker: drawWorker(rt)})
	}
	w.fresh++
	got, err := w.begin(rt).ClaimEach(context.Background(), consumer, wishes)
	require.NoError(rt, err)
	require.Len(rt, got, len(wishes))
	for i, want := range w.m.ClaimEach(w.now, wishes) {
		require.Equal(rt, want.Before.State, got[i].Before.State)
		require.Equal(rt, want.Limited, got[i].Limited)
		if want.Lease.Token == "" {
			require.Zero(rt, got[i].Lease)
		} else {
			w.leased(rt, []redisq.Lease{want.Lease}, []redisq.Lease{got[i].Lease})
		}
	}
	w.end()
}

// drawLeases draws current and lost leases.
func (w *walker) drawLeases(rt *rapid.T) []redisq.Lease {
	var out []redisq.Lease
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		id := w.known(rt)
		if leased := w.m.IDs(redisq.Leased); len(leased) > 0 && rapid.Bool().Draw(rt, "current") {
			id = leased[rapid.IntRange(0, len(leased)-1).Draw(rt, "lease")]
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
	require.Equal(rt, w.m.Extend(w.now, leases, lease), got)
	w.end()
}

// restoreLeases restores leases of jobs in any state, with attempts above and below those
// that Redis has.
func (w *walker) restoreLeases(rt *rapid.T) {
	lease := durations.Draw(rt, "lease")
	var leases []redisq.Lease
	for _, l := range w.drawLeases(rt) {
		if s := w.m.Standing(l.ID); s.State != redisq.Missing { // a job keeps its priority
			l.Priority = s.Priority
		}
		if l.Token == "none" {
			l.Token += l.ID.String()
		}
		l.Attempt = rapid.IntRange(1, 3).Draw(rt, "attempt")
		l.Worker = drawWorker(rt)
		leases = append(leases, l)
	}
	w.fresh++
	got, err := w.begin(rt).RestoreLeases(context.Background(), consumer, leases, lease)
	require.NoError(rt, err)
	require.Equal(rt, w.m.RestoreLeases(w.now, leases, lease), got)
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
	require.Equal(rt, w.m.Nack(w.now, leases, delays), got)
	w.end()
}

func (w *walker) giveBack(rt *rapid.T) {
	leases := w.drawLeases(rt)
	var delays []time.Duration
	for range leases {
		delays = append(delays, rapid.SampledFrom([]time.Duration{0, never}).Draw(rt, "delay"))
	}
	got, err := w.begin(rt).GiveBack(context.Background(), consumer, leases, delays)
	require.NoError(rt, err)
	require.Equal(rt, w.m.GiveBack(w.now, leases, delays), got)
	w.end()
}

func (w *walker) release(rt *rapid.T) {
	leases := w.drawLeases(rt)
	got, err := w.begin(rt).Release(context.Background(), consumer, leases)
	require.NoError(rt, err)
	require.Equal(rt, w.m.Release(leases), got)
	w.end()
}

func (w *walker) ack(rt *rapid.T) {
	var ids []ident.ID
	for range rapid.IntRange(1, 4).Draw(rt, "n") {
		ids = append(ids, w.known(rt))
	}
	got, err := w.begin(rt).Ack(context.Background(), consumer, ids)
	require.NoError(rt, err)
	require.Equal(rt, w.m.Ack(ids), got)
	w.end()
}

func (w *walker) ackLeases(rt *rapid.T) {
	leases := w.drawLeases(rt)
	got, err := w.begin(rt).AckLeases(context.Background(), consumer, leases)
	require.NoError(rt, err)
	require.Equal(rt, w.m.AckLeases(leases), got)
	w.end()
}

// byID returns the jobs whose leases ended.
func byID(x redisq.Expired) map[ident.ID]redisq.Job {
	out := map[ident.ID]redisq.Job{}
	for _, j := range x.Returned {
		out[j.ID] = j
	}
	return out
}

func (w *walker) reclaim(rt *rapid.T) {
	most := rapid.IntRange(0, 4).Draw(rt, "max attempts")
	got, err := w.begin(rt).Reclaim(context.Background(), consumer, redisq.MaxBatch, most)
	require.NoError(rt, err)
	want := w.m.Reclaim(w.now, redisq.MaxBatch, most)
	require.Equal(rt, byID(want), byID(got))
	inOrder := func(a, b redisq.Lease) int { return a.ID.Compare(b.ID) } // real deadlines may be equal
	slices.SortFunc(want.Exhausted, inOrder)
	slices.SortFunc(got.Exhausted, inOrder)
	w.leased(rt, want.Exhausted, got.Exhausted)
	require.Equal(rt, want.Empty, got.Empty)
	w.end()
}

func (w *walker) peek(rt *rapid.T) {
	ctx := context.Background()
	q := w.begin(rt)
	size := rapid.IntRange(1, 4).Draw(rt, "size")
	var after *redisq.Cursor
	for want := w.m.Peek(w.now, w.window, nil, len(w.tokens)+w.fresh+1); ; {
		got, err := q.Peek(ctx, consumer, after, size)
		require.NoError(rt, err)
		require.Len(rt, got, min(size, len(want)))
		for i, got := range got {
			want[i].Score = got.Score // by the clock of the server
			require.Equal(rt, want[i], got)
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
	w.m.Spilled = priority
	w.end()
}

// lose empties Redis or replaces the epoch.
func (w *walker) lose(rt *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(rt, "loss") {
	case 0:
		w.s.Flush()
		w.m = queuemodel.New()
	case 1:
		require.NoError(rt, w.begin(rt).Renew(context.Background(), consumer))
	default: // losses are rare
	}
	w.end()
}

// compare checks the invariants of the keys and the state of every job.
func (w *walker) compare(rt *rapid.T) {
	q := w.brokers[0]
	ids := make([]ident.ID, w.fresh+1)
	for i := range ids {
		ids[i] = at(i)
	}
	got, err := q.Probe(context.Background(), consumer, ids)
	require.NoError(rt, err)
	for i, id := range ids {
		want := w.m.Standing(id)
		want.At = got[i].At // by the clock of the server
		require.Equal(rt, want, got[i], "job %d", i)
	}
	check(rt, w.s, q)
}
