package pull

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/limit"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// The jobs of a replay come on the routes of its consumer, behind all others. The ID of such a job is
// that of the job which it repeats, so its lease names the replay: <replay>~<token>. A request
// without a lease means the job of the consumer, if the queue has it, and else that of the replay.

const replayMark = "~"

// leaseText returns a lease token as the client gets it.
func leaseText(k *durable.Consumer, token string) string {
	if k.Replay == nil {
		return token
	}
	return k.Replay.ID() + replayMark + token
}

// setLease tells the client its lease, and the replay if the job is one of a replay.
func setLease(rc *fasthttp.RequestCtx, k *durable.Consumer, token string) {
	rc.Response.Header.Set(LeaseHeader, leaseText(k, token))
	if k.Replay != nil {
		rc.Response.Header.Set(replayHeader, k.Replay.ID())
	}
}

// ofLease returns the generation that a lease of the consumer names, and its token.
func (p *Puller) ofLease(k *durable.Consumer, lease string) (*durable.Consumer, string, error) {
	id, token, replayed := strings.Cut(lease, replayMark)
	if !replayed {
		return k, lease, nil
	}
	g := p.catalogue.ReplayOf(k.No)
	if g == nil || g.Replay.ID() != id {
		return nil, "", errLeaseLost
	}
	return g, token, nil
}

// generation returns the generation of the consumer that a request without a lease for one of its jobs
// means.
func (p *Puller) generation(ctx context.Context, k *durable.Consumer, id ident.ID) (*durable.Consumer, error) {
	g := p.catalogue.ReplayOf(k.No)
	if g == nil {
		return k, nil
	}
	replayed, err := p.replayed(ctx, k, g, []ident.ID{id})
	if err != nil || !replayed[0] {
		return k, err
	}
	return g, nil
}

// replayed reports which jobs Redis has in the replay g alone.
func (p *Puller) replayed(ctx context.Context, k, g *durable.Consumer, ids []ident.ID) ([]bool, error) {
	out := make([]bool, len(ids))
	live, err := p.probe(ctx, k.No, ids)
	missing := func(q redisq.Standing) bool { return q.State == redisq.Missing }
	if err != nil || !slices.ContainsFunc(live, missing) {
		return out, err
	}
	repeated, err := p.probe(ctx, g.No, ids)
	for i := range repeated {
		out[i] = missing(live[i]) && !missing(repeated[i])
	}
	return out, err
}

// limitsOf returns the limits of the leases of a generation.
func (p *Puller) limitsOf(k *durable.Consumer) redisq.Limits {
	l := limit.Of(p.policies.Of(k.Policy), redisq.Rate{})
	if k.Replay != nil {
		l = limit.OfReplay(l, k.Replay.Rate)
	}
	return l
}

// claimAny claims jobs of the consumer, and where it has none, of its replay.
func (p *Puller) claimAny(ctx context.Context, k *durable.Consumer, q claimRequest) (claimed, error) {
	c, jobs, err := p.claimOnce(ctx, k, q)
	got := claimed{k: k, of: k, own: c, claim: c, jobs: jobs}
	g := p.catalogue.ReplayOf(k.No)
	if g == nil || err != nil || len(jobs) > 0 || c.Ready > 0 {
		return got, err
	}
	again, jobs, err := p.claimOnce(ctx, g, q)
	if errors.Is(err, catalogue.ErrUnknownConsumer) { // the replay has just ended
		return got, nil
	}
	if again.NextDue == 0 || c.NextDue > 0 && c.NextDue < again.NextDue {
		again.NextDue = c.NextDue
	}
	got.of, got.claim, got.jobs = g, again, jobs
	return got, err
}

// make makes the transitions.
func (u *updating) make(ctx context.Context) {
	if !u.runReplayed(ctx) {
		u.run(ctx)
	}
}

// runReplayed is run where some entries may be about jobs of a replay: it runs those of each
// generation for themselves. It reports false, and does nothing, where all are of the consumer.
func (u *updating) runReplayed(ctx context.Context) bool {
	g := u.p.catalogue.ReplayOf(u.k.No)
	if g == nil && !slices.ContainsFunc(u.updates, func(e update) bool { return strings.Contains(e.Lease, replayMark) }) {
		return false
	}
	of, err := u.generations(ctx, g)
	if err != nil {
		u.fail(indexes(len(u.updates)), err)
		return true
	}
	for _, k := range []*durable.Consumer{u.k, g} {
		part := updating{p: u.p, ch: u.ch, k: k}
		var places []int
		for i, e := range u.updates {
			if k == nil || of[i] != k {
				continue
			}
			_, e.Lease, _ = u.p.ofLease(u.k, e.Lease)
			part.updates, places = append(part.updates, e), append(places, i)
		}
		part.ids, part.errs = make([]ident.ID, len(places)), make([]error, len(places))
		part.run(ctx)
		for n, i := range places {
			u.errs[i], u.ids[i] = part.errs[n], part.ids[n]
		}
	}
	u.of = of
	return true
}

// generations returns the generation that each entry means, nil where it is refused. g is the replay
// of the consumer, or nil.
func (u *updating) generations(ctx context.Context, g *durable.Consumer) ([]*durable.Consumer, error) {
	of := make([]*durable.Consumer, len(u.updates))
	var asked []int
	var ids []ident.ID
	for i, e := range u.updates {
		if of[i], _, u.errs[i] = u.p.ofLease(u.k, e.Lease); e.Lease != "" || g == nil {
			continue
		}
		if job, err := ident.Parse(e.ID); err == nil { // other ones are refused later
			id, _, _ := job.Split()
			asked, ids = append(asked, i), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return of, nil
	}
	replayed, err := u.p.replayed(ctx, u.k, g, ids)
	for n, i := range asked {
		if replayed[n] {
			of[i] = g
		}
	}
	return of, err
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
