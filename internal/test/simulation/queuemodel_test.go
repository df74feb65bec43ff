package simulation

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// A queuePair is the queue of one consumer twice: the real scripts and the model.
type queuePair struct {
	t      *testing.T
	r      chance
	real   *redisq.Queue
	model  *queuemodel.Consumer
	server *miniredis.Miniredis
	now    time.Time
	window int
	used   int // IDs up to it may be known
	leases []redisq.Lease
}

// What the simulation believes of Redis is what the scripts do: random operations
// have the same answers, tokens included.
func TestQueueModelIsWhatTheScriptsDo(t *testing.T) {
	for seed := range uint64(20) {
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
		p := &queuePair{t: t, r: draw(seed, word("queue model")), model: queuemodel.New(), server: server,
			now: time.UnixMilli(1_800_000_000_000)}
		p.window = 1 + p.r.below(6)
		p.real = redisq.New(client, redisq.Options{Window: p.window, Logger: slog.New(slog.DiscardHandler)})
		server.SetTime(p.now)
		_, err := p.real.Stats(t.Context(), 1)
		require.NoError(t, err)
		p.model.Epoch, err = client.HGet(t.Context(), p.real.Keys(1)[4], "e").Result()
		require.NoError(t, err)
		p.model.Looked = p.now.UnixMilli()
		for range 150 {
			p.now = p.now.Add(time.Duration(p.r.below(30)) * time.Millisecond)
			if p.r.hit(10) && p.now.UnixMilli() > 1_800_000_000_000+20_000 { // the clock goes back, or on
				p.now = p.now.Add(-time.Duration(p.r.below(20_000)) * time.Millisecond)
			} else if p.r.hit(20) {
				p.now = p.now.Add(10 * time.Second)
			}
			server.SetTime(p.now)
			p.step(t.Context())
			p.compare(t.Context())
		}
		require.NoError(t, client.Close())
	}
}

func (p *queuePair) id(n int) ident.ID {
	id := ident.AtMillis(1_800_000_000_000 + int64(n))
	id[9] = byte(n)
	return id
}

// known draws the ID of a job that may be there.
func (p *queuePair) known() ident.ID { return p.id(p.r.below(p.used + 1)) }

func (p *queuePair) job(id ident.ID) redisq.Job {
	return redisq.Job{ID: id, Priority: []int{0, 0, 1, 2, 1023}[p.r.below(5)], Attempts: p.r.below(2),
		Delay: time.Duration(max(p.r.below(60)-30, 0)) * time.Millisecond}
}

func (p *queuePair) step(ctx context.Context) {
	t, now := p.t, p.now.UnixMilli()
	span := time.Duration(1+p.r.below(60)) * time.Millisecond
	switch p.r.below(14) {
	case 0, 1:
		p.enqueueFresh(ctx)
	case 2:
		src := []redisq.Source{redisq.Repeated, redisq.Recovered}[p.r.below(2)]
		jobs := []redisq.Job{p.job(p.known()), p.job(p.known()), p.job(p.known())}
		got, err := p.real.Enqueue(ctx, 1, jobs, src)
		require.NoError(t, err)
		require.Equal(t, p.model.Enqueue(now, p.window, jobs, src), got)
	case 3, 4:
		n := p.r.below(4)
		limits := p.limits()
		got, err := p.real.Claim(ctx, 1, n, span, limits)
		require.NoError(t, err)
		want := p.model.Claim(now, p.window, n, span, limits)
		require.Equal(t, want, got)
		p.leases = append(p.leases, got.Leases...)
	case 5:
		wishes := []redisq.Wish{{Job: p.job(p.known()), Lease: span, Insert: p.r.hit(300), Limits: p.limits()},
			{Job: p.job(p.known()), Lease: span}}
		got, err := p.real.ClaimEach(ctx, 1, wishes)
		require.NoError(t, err)
		for i, want := range p.model.ClaimEach(now, wishes) {
			require.Equal(t, want.Before.State, got[i].Before.State)
			want.Before = got[i].Before
			require.Equal(t, want, got[i])
			p.leases = append(p.leases, got[i].Lease)
		}
	case 6:
		p.fenced(ctx, now, span)
	case 7:
		ids := []ident.ID{p.known()}
		got, err := p.real.Ack(ctx, 1, ids)
		require.NoError(t, err)
		require.Equal(t, p.model.Ack(ids), got)
		if len(p.leases) > 0 {
			held := []redisq.Lease{p.leases[p.r.below(len(p.leases))]}
			ended, err := p.real.AckLeases(ctx, 1, held)
			require.NoError(t, err)
			require.Equal(t, p.model.AckLeases(held), ended)
		}
	case 8:
		if now < p.model.Looked-5000 { // the script would drop everything
			return
		}
		p.model.WentBack(now)
		limit, most := 1+p.r.below(3), p.r.below(4)
		got, err := p.real.Reclaim(ctx, 1, limit, most)
		require.NoError(t, err)
		require.Equal(t, p.model.Reclaim(now, limit, most), got)
		p.leases = append(p.leases, got.Exhausted...)
	case 9:
		got, err := p.real.Peek(ctx, 1, nil, 2)
		require.NoError(t, err)
		require.Equal(t, p.model.Peek(now, p.window, nil, 2), got)
		if len(got) > 0 {
			after := &redisq.Cursor{Score: got[0].Score, ID: got[0].ID}
			next, err := p.real.Peek(ctx, 1, after, 3)
			require.NoError(t, err)
			require.Equal(t, p.model.Peek(now, p.window, after, 3), next)
		}
	case 10:
		priority, spills := p.r.below(3)-1, p.model.Spills-int64(p.r.below(2))
		got, err := p.real.ReplaceSpilled(ctx, 1, priority, max(spills, 0))
		require.NoError(t, err)
		require.Equal(t, p.model.ReplaceSpilled(priority, max(spills, 0)), got)
	case 11:
		p.offer(ctx, span)
	case 12:
		wait := time.Duration(p.r.below(3)-1) * span
		require.NoError(t, p.real.Hold(ctx, 1, max(wait, 0)))
		p.model.Hold(now, wait)
	}
}

// limits draws limits, half of the time none.
func (p *queuePair) limits() redisq.Limits {
	if p.r.hit(500) {
		return redisq.Limits{}
	}
	l := redisq.Limits{Concurrency: max(p.r.below(6)-2, 0), RetryShare: []int{0, 1, 50, 90, 100}[p.r.below(5)],
		Slots: p.r.below(6), Retrying: p.r.below(3)}
	if p.r.hit(500) {
		l.Rate = redisq.Rate{N: 1 + p.r.below(4), Per: time.Duration(1+p.r.below(300)) * time.Millisecond}
		l.Slack = time.Duration(p.r.below(3)) * time.Millisecond
	}
	if p.r.hit(300) {
		l.Pace = redisq.Rate{N: 1 + p.r.below(2), Per: time.Duration(1+p.r.below(2000)) * time.Millisecond}
	}
	return l
}

// regrant moves a lease in the count of the rates, and gives it back.
func (p *queuePair) regrant(ctx context.Context, now int64, lease redisq.Lease) {
	limits := p.limits()
	if !limits.Rated() {
		return
	}
	got, wait, err := p.real.Regrant(ctx, 1, lease, limits)
	require.NoError(p.t, err)
	want, wantWait := p.model.Regrant(now, lease, limits)
	require.Equal(p.t, want, got)
	require.Equal(p.t, wantWait, wait)
	ok, err := p.real.Release(ctx, 1, []redisq.Lease{got})
	require.NoError(p.t, err)
	require.Equal(p.t, p.model.Release([]redisq.Lease{want}), ok)
}

func (p *queuePair) enqueueFresh(ctx context.Context) {
	var jobs []redisq.Job
	for range 1 + p.r.below(4) {
		p.used++
		j := redisq.Job{ID: p.id(p.used), Priority: []int{0, 0, 1}[p.r.below(3)]}
		jobs = append(jobs, j)
	}
	if id := p.known(); id.Millis() <= p.model.Brought { // its broker stood still
		jobs = append(jobs, redisq.Job{ID: id})
	}
	got, err := p.real.Enqueue(ctx, 1, jobs, redisq.Fresh)
	require.NoError(p.t, err)
	require.Equal(p.t, p.model.Enqueue(p.now.UnixMilli(), p.window, jobs, redisq.Fresh), got)
}

// offer offers jobs of one priority that may be leased at once.
func (p *queuePair) offer(ctx context.Context, span time.Duration) {
	var jobs []redisq.Job
	priority := p.r.below(2)
	for range 1 + p.r.below(4) {
		p.used++
		jobs = append(jobs, redisq.Job{ID: p.id(p.used), Priority: priority})
	}
	if id := p.known(); p.r.hit(200) && id.Millis() <= p.model.Brought { // its broker stood still
		jobs = append(jobs, redisq.Job{ID: id, Priority: priority})
	}
	batch := redisq.Batch{Consumer: 1, Jobs: jobs, Lease: span, Limits: p.limits()}
	got, errs := p.real.EnqueueMany(ctx, []redisq.Batch{batch})
	require.NoError(p.t, errs[0])
	want := p.model.Offer(p.now.UnixMilli(), p.window, batch, redisq.Fresh)
	want.Epoch = p.model.Epoch
	if want.Spilled == 0 { // the script for plain jobs does not tell
		want.SpilledPriority = got[0].SpilledPriority
	}
	require.Equal(p.t, want, got[0])
	p.leases = append(p.leases, got[0].Leases...)
}

// fenced runs one of the calls that want a token, with one that may be old.
func (p *queuePair) fenced(ctx context.Context, now int64, span time.Duration) {
	if len(p.leases) == 0 {
		return
	}
	leases := []redisq.Lease{p.leases[len(p.leases)-1-p.r.below(min(len(p.leases), 4))]}
	var got, want []bool
	var err error
	switch p.r.below(6) {
	case 4:
		p.regrant(ctx, now, leases[0])
		return
	case 3:
		// A lease that is lost, of an attempt that Redis may know of or not.
		leases[0].ID, leases[0].Priority, leases[0].Attempt = p.known(), 1, 1+p.r.below(3)
		if s := p.model.Standing(leases[0].ID); s.State != redisq.Missing { // a job keeps its priority
			leases[0].Priority = s.Priority
		}
		if leases[0].Token == "" {
			leases[0].Token = "lost"
		}
		got, err = p.real.RestoreLeases(ctx, 1, leases, span)
		want = p.model.RestoreLeases(now, leases, span)
	case 0:
		got, err = p.real.Extend(ctx, 1, leases, span)
		want = p.model.Extend(now, leases, span)
	case 1:
		delays := []time.Duration{time.Duration(p.r.below(2)) * span}
		got, err = p.real.Nack(ctx, 1, leases, delays)
		want = p.model.Nack(now, leases, delays)
	case 5:
		delays := []time.Duration{time.Duration(p.r.below(2)) * span}
		got, err = p.real.GiveBack(ctx, 1, leases, delays)
		want = p.model.GiveBack(now, leases, delays)
	case 2:
		got, err = p.real.Release(ctx, 1, leases)
		want = p.model.Release(leases)
	}
	require.NoError(p.t, err)
	require.Equal(p.t, want, got)
}

// compare looks at every job, at the counts, and at the structure.
func (p *queuePair) compare(ctx context.Context) {
	stats, err := p.real.Stats(ctx, 1)
	require.NoError(p.t, err)
	stats.Epoch = "" // random
	require.Equal(p.t, p.model.Stats(p.now.UnixMilli()), stats)
	ids := make([]ident.ID, p.used+1)
	want := make([]redisq.Standing, len(ids))
	for i := range ids {
		ids[i] = p.id(i)
		want[i] = p.model.Standing(ids[i])
	}
	got, err := p.real.Probe(ctx, 1, ids)
	require.NoError(p.t, err)
	require.Equal(p.t, want, got)
	_, wrong := p.model.Structure()
	require.Empty(p.t, wrong)
	limits := redisq.Limits{Rate: redisq.Rate{N: 2, Per: 50 * time.Millisecond}, Concurrency: 2}
	for _, job := range []ident.ID{none, p.known()} {
		outlook, err := p.real.Outlook(ctx, 1, job, limits)
		require.NoError(p.t, err)
		require.Equal(p.t, p.model.Outlook(p.now.UnixMilli(), job, limits), outlook)
	}
}
