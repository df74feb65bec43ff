package reaper

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/redisq"
)

// Jobs that a worker claims after their time to live die at the claim. The sweep ends those
// that no worker claims: jobs of a pull consumer without workers, of a paused consumer, and
// jobs that wait for a retry or outside the window. For the time to live of a consumer it
// follows the IDs of the messages, from the settled watermark; for that of a message it reads
// the table expiring.

const (
	// expireTick is the interval of the sweep.
	expireTick = 2 * time.Second
	// expirePage is the number of jobs that one step of the sweep examines, and expirePages
	// the number of steps for one consumer in one round.
	expirePage  = redisq.MaxBatch
	expirePages = 20
	// expireBusy is the number of expired jobs of a consumer, leased to workers, that the sweep
	// remembers. With more of them it does not advance.
	expireBusy = 2000
	// expireLease is the time in which the sweep stores the death of a job that it has leased.
	expireLease = 30 * time.Second
	// expireAgain is the delay after which the sweep looks again at a message with a job that
	// is leased to a worker.
	expireAgain = 5 * time.Second
)

// A sweeper is the sweep of the consumers that this broker repairs. Only its loop uses it.
type sweeper struct {
	*Reaper
	swept   map[uint32]*swept // by consumer
	history int               // of the store, in which the progress is
}

// A swept is the progress of the sweep on one consumer. It exists in memory only: the sweep
// of another broker begins at the settled watermark.
type swept struct {
	through  ident.ID   // the jobs up to it are over, or in busy, or have a row in open_jobs
	busy     []ident.ID // expired, but leased to a worker
	openFrom ident.ID   // the next row of open_jobs
}

func (r *Reaper) expireLoop(ctx context.Context) {
	s := &sweeper{Reaper: r, swept: map[uint32]*swept{}}
	r.rounds(ctx, expireTick, "jobs past their time to live cannot be ended; the sweep tries again", s.round)
}

// round visits the consumers with a time to live, and the messages with one. After a failure
// it continues with the others. It returns the last error.
func (s *sweeper) round(ctx context.Context) error {
	if s.another(&s.history) {
		clear(s.swept)
	}
	failure := s.messages(ctx)
	maps.DeleteFunc(s.swept, func(no uint32, _ *swept) bool { return s.deleted(no) })
	for _, no := range s.Catalogue.ConsumerNos() {
		k := s.Catalogue.ConsumerByNo(no)
		if k == nil || s.Policies.Of(k.Policy).TTL == 0 || !s.Cluster.Owns(no) {
			delete(s.swept, no)
			continue
		}
		failure = cmp.Or(s.consumer(ctx, k), failure)
	}
	return failure
}

// progress returns the progress on a consumer, nil while its settled watermark is unknown.
func (s *sweeper) progress(consumer uint32) *swept {
	if p := s.swept[consumer]; p != nil {
		return p
	}
	s.mu.Lock()
	l := s.scanStates[consumer]
	if l != nil {
		s.swept[consumer] = &swept{through: l.settled}
	}
	s.mu.Unlock()
	return s.swept[consumer]
}

// consumer ends the expired jobs of one consumer.
func (s *sweeper) consumer(ctx context.Context, k *durable.Consumer) error {
	p := s.progress(k.No)
	if p == nil {
		return nil
	}
	ttl := s.Policies.Of(k.Policy).TTL
	through := minID(s.through(), ident.AtMillis(s.Cluster.NowMs()-ttl.Milliseconds()))
	for n := 0; n < expirePages && p.through.Compare(through) < 0 && len(p.busy) < expireBusy; n++ {
		heads, err := s.Store.Heads(ctx, k.ChannelNo, p.through, through, expirePage)
		if err != nil {
			return err
		}
		busy, err := s.expire(ctx, k, concernedBy(k, heads))
		if err != nil {
			return err
		}
		p.busy = append(p.busy, busy...)
		p.through = through
		if len(heads) == expirePage {
			p.through = heads[len(heads)-1].ID
		}
	}
	return cmp.Or(s.again(ctx, k, p), s.open(ctx, k, p))
}

// concernedBy returns those of the heads that concern a consumer.
func concernedBy(k *durable.Consumer, heads []durable.Head) []durable.Head {
	mine := make([]durable.Head, 0, len(heads))
	for _, h := range heads {
		if k.Concerns(h) {
			mine = append(mine, h)
		}
	}
	return mine
}

// again looks at the jobs that were leased to workers.
func (s *sweeper) again(ctx context.Context, k *durable.Consumer, p *swept) error {
	var left []ident.ID
	for from := 0; from < len(p.busy); from += expirePage {
		part := p.busy[from:min(from+expirePage, len(p.busy))]
		heads, err := s.Store.HeadsOf(ctx, k.ChannelNo, part)
		if err != nil {
			return err
		}
		busy, err := s.expire(ctx, k, heads)
		if err != nil {
			return err
		}
		left = append(left, busy...)
	}
	p.busy = left
	return nil
}

// open ends expired jobs that have a row in open_jobs: they may have been redriven, or lie
// before the settled watermark. A round goes on where the last one stopped.
func (s *sweeper) open(ctx context.Context, k *durable.Consumer, p *swept) error {
	policy, now := s.Policies.Of(k.Policy), s.Cluster.NowMs()
	for range expirePages {
		rows, err := s.Store.OpenJobs(ctx, k.No, p.openFrom, expirePage)
		if err != nil {
			return err
		}
		var heads []durable.Head
		for _, j := range rows {
			if policy.Expiry(j.ID.Millis(), j.RedrivenMs, 0) <= now {
				heads = append(heads, durable.Head{ID: j.ID, Priority: j.Priority})
			}
		}
		if _, err := s.expire(ctx, k, heads); err != nil {
			return err
		}
		p.openFrom = ident.ID{}
		if len(rows) < expirePage {
			return nil
		}
		p.openFrom = rows[len(rows)-1].ID.Next()
	}
	return nil
}

// messages ends the jobs of messages past their own time to live, of this broker's channels.
func (s *sweeper) messages(ctx context.Context) error {
	now := s.Cluster.NowMs()
	var after durable.Expiry
	for range expirePages {
		rows, err := s.Store.Expiring(ctx, after, now, expirePage)
		if err != nil {
			return err
		}
		of := map[uint32][]durable.Expiry{}
		for _, e := range rows {
			of[e.ChannelNo] = append(of[e.ChannelNo], e)
		}
		for no, mine := range of {
			ch := s.Catalogue.ChannelByNo(no)
			if ch == nil || !s.Cluster.Owns(no) {
				continue
			}
			if err := s.channel(ctx, ch, mine); err != nil {
				return err
			}
		}
		if len(rows) < expirePage {
			return nil
		}
		after = rows[len(rows)-1]
	}
	return nil
}

// channel ends the jobs of some messages of a channel.
func (s *sweeper) channel(ctx context.Context, ch *catalogue.Channel, rows []durable.Expiry) error {
	ids := make([]ident.ID, len(rows))
	for i, e := range rows {
		ids[i] = e.ID
	}
	heads, err := s.Store.HeadsOf(ctx, ch.No, ids)
	if err != nil {
		return err
	}
	open := map[ident.ID]bool{}
	for _, h := range heads {
		open[h.ID] = h.Audience > len(ch.Consumers) // the catalogue's copy is behind
	}
	for _, k := range ch.Consumers {
		if k.Deleted() {
			continue
		}
		busy, err := s.expire(ctx, k, concernedBy(k, heads))
		if err != nil {
			return err
		}
		for _, id := range busy {
			open[id] = true
		}
	}
	var over, later []durable.Expiry
	for _, e := range rows {
		if open[e.ID] {
			later = append(later, e)
		} else {
			over = append(over, e)
		}
	}
	return s.Store.Expire(ctx, over, later, s.Cluster.NowMs()+expireAgain.Milliseconds())
}

// expire stores the deaths of those jobs that are open and expired. It leases each job first,
// so that no worker has it, and reads its state again under the lease. It returns the expired
// jobs that are leased to a worker.
func (s *sweeper) expire(ctx context.Context, k *durable.Consumer, heads []durable.Head) (busy []ident.ID, err error) {
	heads, states, err := s.due(ctx, k, heads)
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	wishes := make([]redisq.Wish, len(heads))
	for i, h := range heads {
		wishes[i] = redisq.Wish{Job: redisq.Job{ID: h.ID, Priority: h.Priority, Attempts: states[h.ID].Attempts},
			Lease: expireLease, Insert: true}
	}
	grants, err := s.Queue.ClaimEach(ctx, k.No, wishes)
	if err != nil {
		return nil, err
	}
	var mine []durable.Head
	leases := map[ident.ID]redisq.Lease{}
	for i, g := range grants {
		if g.Lease.Token == "" {
			busy = append(busy, heads[i].ID)
			continue
		}
		mine, leases[heads[i].ID] = append(mine, heads[i]), g.Lease
	}
	if len(mine) == 0 {
		return busy, nil
	}
	s.Touch(k.No)
	failpoint.At(failpoint.AfterExpiryLease)
	return busy, s.end(ctx, k, mine, leases)
}

// due returns the jobs that are open and expired, with their states.
func (s *sweeper) due(ctx context.Context, k *durable.Consumer, heads []durable.Head) ([]durable.Head,
	map[ident.ID]durable.JobState, error) {
	if len(heads) == 0 {
		return nil, nil, nil
	}
	ids := make([]ident.ID, len(heads))
	for i, h := range heads {
		ids[i] = h.ID
	}
	states, err := s.Store.JobStates(ctx, k.No, ids)
	if err != nil {
		return nil, nil, err
	}
	policy, now := s.Policies.Of(k.Policy), s.Cluster.NowMs()
	var due []durable.Head
	for _, h := range heads {
		j := states[h.ID]
		if j.Status.Over() {
			continue
		}
		if at := policy.Expiry(h.ID.Millis(), j.RedrivenMs, h.TTLMs); at > 0 && at <= now {
			due = append(due, h)
		}
	}
	return due, states, nil
}

// end stores the deaths of leased jobs, as far as they are still due, and then ends the leases.
func (s *sweeper) end(ctx context.Context, k *durable.Consumer, heads []durable.Head,
	leases map[ident.ID]redisq.Lease) error {
	due, states, err := s.due(ctx, k, heads)
	if err != nil {
		return err // the leases end by themselves
	}
	now := s.Cluster.NowMs()
	var dead []durable.Outcome
	var over []redisq.Lease
	for _, h := range due {
		l := leases[h.ID]
		dead = append(dead, durable.Expiration(k.No, h.ID, l.Priority, max(l.Attempt-1, states[h.ID].Attempts), now))
		over = append(over, l)
		delete(leases, h.ID)
	}
	var back []redisq.Lease
	for id, l := range leases {
		if states[id].Status.Over() {
			over = append(over, l)
		} else {
			back = append(back, l)
		}
	}
	if len(back) > 0 { // redriven since the first look
		if _, err := s.Queue.Release(ctx, k.No, back); err != nil {
			return err
		}
	}
	if len(dead) > 0 {
		if err := s.Store.Record(ctx, dead); err != nil {
			return err
		}
		s.died(durable.Expired, len(dead))
		s.Log.Info("jobs became older than their time to live; they are dead", "consumer", k.No, "jobs", len(dead))
	}
	_, err = s.Queue.AckLeases(ctx, k.No, over)
	return err
}
