package reaper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// The clock of the rig is a minute ahead: every job is older than a TTL of 30 s.
func mortal(o *Options) {
	o.Policies = policy.NewBook(policy.Policy{MaxRetries: 1, TTL: 30 * time.Second})
}

// sweep is a round of a sweeper that begins at the settled watermark.
func (r *rig) sweeper() *sweeper {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scanStates[r.consumer.No] == nil {
		r.scanStates[r.consumer.No] = &scanState{}
	}
	return &sweeper{Reaper: r.Reaper, swept: map[uint32]*swept{}}
}

func (r *rig) reasons(ids ...ident.ID) (out []string) {
	states, err := r.store.JobStates(r.t.Context(), r.consumer.No, ids)
	require.NoError(r.t, err)
	for _, id := range ids {
		out = append(out, states[id].Reason.String())
	}
	return out
}

func TestTheSweepEndsWhatNoWorkerHas(t *testing.T) {
	r := newRig(t, 3, mortal)
	ids := r.publish(0, 0, 5, 0, 0, 0)
	ctx := t.Context()
	leased, _, err := r.queue.ClaimOne(ctx, r.consumer.No, redisq.Job{ID: ids[0]}, time.Minute, true)
	require.NoError(t, err)
	_, err = r.queue.Enqueue(ctx, r.consumer.No, []redisq.Job{{ID: ids[1]}, {ID: ids[2], Priority: 5, Delay: time.Hour},
		{ID: ids[3]}, {ID: ids[4]}}, redisq.Repeated)
	require.NoError(t, err)
	require.NoError(t, r.store.Record(ctx, []durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: r.consumer.No,
		ID: ids[3], Attempts: 1, AtMs: 1}}))
	s := r.sweeper()
	require.NoError(t, s.round(ctx))
	require.Equal(t, []string{"", "expired", "expired", "", "expired", "expired"}, r.reasons(ids...),
		"leased, ready, delayed, delivered, spilled, unknown")
	require.Equal(t, []ident.ID{ids[0]}, s.swept[r.consumer.No].busy)
	standings, err := r.queue.Probe(ctx, r.consumer.No, ids)
	require.NoError(t, err)
	require.Equal(t, redisq.Leased, standings[0].State)
	for _, i := range []int{1, 2, 4, 5} {
		require.Equal(t, redisq.Missing, standings[i].State)
	}
	dead, err := r.store.DeadJobs(ctx, r.consumer.No, ident.ID{}, 10)
	require.NoError(t, err)
	require.Len(t, dead, 4)
	require.Zero(t, dead[0].Attempts)
	require.Equal(t, 5, dead[1].Priority)

	_, err = r.queue.Release(ctx, r.consumer.No, []redisq.Lease{leased})
	require.NoError(t, err)
	require.NoError(t, s.round(ctx))
	require.Equal(t, []string{"expired"}, r.reasons(ids[0]))
	require.Empty(t, s.swept[r.consumer.No].busy)
}

// A failed job lies before the settled watermark, and a redriven one is as old as its redrive.
func TestTheSweepEndsOpenJobs(t *testing.T) {
	r := newRig(t, 10, mortal)
	ids := r.publish(0, 0, 0)
	ctx, k := t.Context(), r.consumer.No
	end := func(kind durable.OutcomeKind, id ident.ID) durable.Outcome {
		return durable.Outcome{Kind: kind, ConsumerNo: k, ID: id, Attempts: 1, AtMs: 1, Reason: durable.AttemptsExhausted}
	}
	require.NoError(t, r.store.Record(ctx, []durable.Outcome{end(durable.OutcomeRetry, ids[0]), end(durable.OutcomeDead,
		ids[1]), end(durable.OutcomeDead, ids[2])}))
	_, err := r.store.Redrive(ctx, k, ids[1:2], r.NowMs()-31_000)
	require.NoError(t, err)
	_, err = r.store.Redrive(ctx, k, ids[2:], r.NowMs()-20_000)
	require.NoError(t, err)
	s := r.sweeper()
	r.scanStates[k].settled = ids[2]
	require.NoError(t, s.round(ctx))
	require.Equal(t, []string{"expired", "expired", ""}, r.reasons(ids...))
}

func TestTheSweepLeavesOthersAlone(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"no time to live":       func(r *rig) { r.Policies = policy.NewBook(policy.Policy{}) },
		"another broker's":      func(r *rig) { r.owned = false },
		"not old enough":        func(r *rig) { r.Policies = policy.NewBook(policy.Policy{TTL: time.Hour}) },
		"Redis does not answer": func(r *rig) { r.server.SetError("away") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 10, mortal)
			ids := r.publish(0)
			change(r)
			err := r.sweeper().round(t.Context())
			require.Equal(t, name == "Redis does not answer", err != nil)
			require.Equal(t, []string{""}, r.reasons(ids...))
		})
	}
}

// A redrive happens after a success that is later than the death, and ever more rarely.
func TestDeadLettersAreRedrivenAfterASuccess(t *testing.T) {
	r := newRig(t, 10, func(o *Options) {
		o.Policies = policy.NewBook(policy.Policy{DLQ: policy.DLQ{Kind: policy.DLQRedrive}})
	})
	ids := r.publish(0, 0, 0)
	ctx, k := t.Context(), r.consumer.No
	died := r.NowMs() - 1000
	die := func(id ident.ID, reason durable.Reason) durable.Outcome {
		return durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k, ID: id, Attempts: 1, AtMs: died, Reason: reason}
	}
	succeed := func(atMs int64) {
		t.Helper()
		require.NoError(t, r.store.Record(ctx, []durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: k,
			ID: r.publish(0)[0], Attempts: 1, AtMs: atMs}}))
	}
	open := func() int {
		t.Helper()
		u := &deadSweep{Reaper: r.Reaper, scans: map[uint32]*deadScan{}}
		require.NoError(t, u.round(ctx))
		rows, err := r.store.OpenJobs(ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		return len(rows)
	}
	require.NoError(t, r.store.Record(ctx, []durable.Outcome{die(ids[0], durable.AttemptsExhausted),
		die(ids[1], durable.Rejected), die(ids[2], durable.Expired)}))
	require.Zero(t, open())
	succeed(died - 1)
	require.Zero(t, open(), "a success before the death")
	succeed(died + 1)
	require.Equal(t, 1, open())
	for n := 1; n <= maxRedrives; n++ {
		died += 1000
		require.NoError(t, r.store.Record(ctx, []durable.Outcome{die(ids[0], durable.AttemptsExhausted)}))
		if n == maxRedrives {
			succeed(died + (1000 * time.Hour).Milliseconds())
			require.Zero(t, open(), "it does not loop for ever")
			break
		}
		pause := redrivePauses[n].Milliseconds()
		succeed(died + pause)
		require.Zero(t, open())
		died += pause + 1
		succeed(died)
		require.Equal(t, 1, open())
	}
}

// Each round moves a bounded number, and the next one goes on.
func TestForwardsAreBoundedAndGoOn(t *testing.T) {
	var forwarded []string
	r := newRig(t, 10, func(o *Options) {
		o.Policies = policy.NewBook(policy.Policy{DLQ: policy.DLQ{Kind: policy.DLQForward, Channel: "target"}})
		o.Forward = func(_ context.Context, m *durable.Message) error {
			forwarded = append(forwarded, m.Key)
			return nil
		}
	})
	ctx := t.Context()
	u := &deadSweep{Reaper: r.Reaper, scans: map[uint32]*deadScan{}}
	ids := r.publish(make([]int, dlqRate+10)...)
	dead := make([]durable.Outcome, len(ids))
	for i, id := range ids {
		dead[i] = durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No, ID: id, Attempts: 1, AtMs: 5,
			Reason: durable.ByConsumer}
	}
	require.NoError(t, r.store.Record(ctx, dead))
	require.ErrorContains(t, u.round(ctx), "does not exist")
	_, _, err := r.store.PutChannel(ctx, durable.Put{ID: "target", NewToken: "t"})
	require.NoError(t, err)
	require.NoError(t, r.catalogue.Refresh(ctx))
	require.NoError(t, u.round(ctx))
	require.Len(t, forwarded, dlqRate)
	require.NoError(t, u.round(ctx))
	require.Len(t, forwarded, dlqRate+10)
	u = &deadSweep{Reaper: r.Reaper, scans: map[uint32]*deadScan{}} // as after a restart
	require.NoError(t, u.round(ctx))
	require.Len(t, forwarded, dlqRate+10)
	require.Equal(t, "dead."+ids[0].Job(0).String()+".5", forwarded[0])
}

// The dead letters of a deleted producer are forwarded like any other: as the broker's own.
func TestAForwardNamesNoDeletedProducer(t *testing.T) {
	var producers []uint32
	r := newRig(t, 10, func(o *Options) {
		o.Policies = policy.NewBook(policy.Policy{DLQ: policy.DLQ{Kind: policy.DLQForward, Channel: "target"}})
		o.Forward = func(_ context.Context, m *durable.Message) error {
			producers = append(producers, m.ProducerNo)
			return nil
		}
	})
	ctx := t.Context()
	var ids []ident.ID
	for _, id := range []string{"stays", "leaves"} {
		p, _, err := r.store.PutProducer(ctx, durable.Put{ID: id, NewToken: "t"})
		require.NoError(t, err)
		m := &durable.Message{ID: r.ids.Next(), ChannelNo: r.channel.No, ProducerNo: p.No, Audience: 1}
		require.Equal(t, []error{nil}, r.store.Insert(ctx, r.node, []*durable.Message{m}))
		ids = append(ids, m.ID)
	}
	for _, id := range ids {
		require.NoError(t, r.store.Record(ctx, []durable.Outcome{{Kind: durable.OutcomeDead, ConsumerNo: r.consumer.No,
			ID: id, Attempts: 1, AtMs: 5, Reason: durable.ByConsumer}}))
	}
	_, _, err := r.store.PutChannel(ctx, durable.Put{ID: "target", NewToken: "t"})
	require.NoError(t, err)
	_, err = r.store.DeleteProducer(ctx, durable.Put{ID: "leaves"})
	require.NoError(t, err)
	require.NoError(t, r.catalogue.Refresh(ctx))
	require.NoError(t, (&deadSweep{Reaper: r.Reaper, scans: map[uint32]*deadScan{}}).round(ctx))
	require.Equal(t, []uint32{1, 0}, producers)
}
