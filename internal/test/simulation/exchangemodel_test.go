package simulation

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// filled returns a pair with some messages and two consumers.
func filled(t *testing.T, seed uint64) *storePair {
	p := newStorePair(t, seed)
	p.join()
	for len(p.ids) < 12 {
		p.insert()
	}
	return p
}

func (p *storePair) consumer() durable.Consumer { return p.consumers[p.r.below(len(p.consumers))] }

// exchange is a random exchange of a job.
func (p *storePair) exchange() *durable.Exchange {
	e := &durable.Exchange{ConsumerNo: p.consumer().No, ID: p.id(), State: durable.DeliveredReceiver,
		GoesBack: p.r.hit(700), Attempt: 1 + p.r.below(3),
		Status: 202, DeliveredMs: 1000, DeadlineMs: 5000, DueMs: int64(1000 + p.r.below(5)), URL: "http://k.example/result"}
	if p.r.hit(200) {
		e.KeepMs = 50
	}
	if p.r.hit(500) {
		e.Status, e.Headers, e.Body = 200, []byte("A:1\n"), []byte("x")
		e.Answered(int64(1000 + p.r.below(5)))
	}
	return e
}

// The same of exchanges: they are stored, due, moved and removed as in SQLite.
func TestExchangeModelIsWhatTheStoreDoes(t *testing.T) {
	p := filled(t, 2)
	ctx := t.Context()
	for range 250 {
		k, ids := p.consumer().No, []ident.ID{p.id(), p.id()}
		switch p.r.below(9) {
		case 0, 1, 2:
			e := p.exchange()
			rows := []durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: e.ConsumerNo, ID: e.ID, Attempts: 1,
				AtMs: 1000, StatusCode: 200, Exchange: e}}
			require.NoError(t, p.real.Record(ctx, rows))
			p.model.record(rows)
		case 3:
			rows := []durable.Outcome{{Kind: durable.OutcomeDelivered, ConsumerNo: k, ID: ids[1], Attempts: 1, AtMs: 1003,
				StatusCode: 200,
				ReplyTo:    durable.ExchangeKey{ConsumerNo: p.consumer().No, ID: ids[0]}}}
			require.NoError(t, p.real.Record(ctx, rows))
			p.model.record(rows)
		case 4, 5:
			from, e := durable.ExchangeState(1+p.r.below(4)), p.exchange()
			moved, err := p.real.MoveExchange(ctx, *e, from)
			require.NoError(t, err)
			require.Equal(t, p.model.moveExchange(*e, from), moved)
		case 6:
			state, due, tries := durable.ExchangeState(1+p.r.below(2)), int64(1000+p.r.below(9)), p.r.below(2)
			require.NoError(t, p.real.DelayWork(ctx, k, state, ids, due, tries))
			if ids[0] == ids[1] { // an UPDATE changes a row once
				ids = ids[:1]
			}
			p.model.delayWork(k, state, ids, due, tries)
		case 7:
			if p.r.hit(100) {
				p.purge()
			}
		case 8:
			e := p.exchange()
			err := p.real.PostExchange(ctx, *e)
			require.Equal(t, p.model.postExchange(*e), err == nil)
		}
		p.compareExchanges(k)
	}
	require.NoError(t, p.real.Close())
}

func (p *storePair) compareExchanges(k uint32) {
	ctx, t := p.t.Context(), p.t
	keyed := func(all []durable.Exchange) map[ident.ID]durable.Exchange {
		out := map[ident.ID]durable.Exchange{}
		for _, e := range all {
			if len(e.Body) == 0 {
				e.Headers, e.Body = nil, nil
			}
			out[e.ID] = e
		}
		return out
	}
	got, err := p.real.Exchanges(ctx, k, p.ids)
	require.NoError(t, err)
	require.Equal(t, keyed(p.model.exchangesOf(k, p.ids)), keyed(got))
	after := uint32(p.r.below(3))
	no, due, err := p.real.NextWork(ctx, after)
	require.NoError(t, err)
	wantNo, wantDue := p.model.nextWork(after)
	require.Equal(t, wantNo, no)
	require.Equal(t, wantDue, due)
	now := int64(999 + p.r.below(9))
	work, err := p.real.DueWork(ctx, k, now, 100)
	require.NoError(t, err)
	require.ElementsMatch(t, p.model.dueWork(k, now, 100), work)
}

// The same of replays: they begin, move on, change their state and keep messages as in SQLite.
func TestReplayModelIsWhatTheStoreDoes(t *testing.T) {
	p := filled(t, 3)
	ctx := t.Context()
	var nos []uint32
	plain := func(r durable.Replay) durable.Replay { // without what the clocks and the other changes decide
		r.CreatedMs, r.StateMs, r.Version = 0, 0, 0
		return r
	}
	for range 250 {
		k := p.consumer()
		no := k.No // of a consumer: there is no such replay
		if len(nos) > 0 && p.r.hit(900) {
			no = nos[p.r.below(len(nos))]
		}
		current, _ := p.model.replay(no)
		switch p.r.below(6) {
		case 0:
			r := durable.Replay{ChannelNo: p.channel, ConsumerNo: k.No, After: p.id(), Through: p.id(),
				Of: durable.ReplayOf(p.r.below(3)), Matched: 3}
			got, err := p.real.CreateReplay(ctx, r)
			want, wantErr := p.model.createReplay(r)
			require.Equal(t, wantErr == nil, err == nil)
			require.Equal(t, errors.Is(wantErr, durable.ErrReplayRunning), errors.Is(err, durable.ErrReplayRunning))
			require.Equal(t, plain(want), plain(got))
			if err == nil {
				nos = append(nos, got.No)
			}
		case 1, 2:
			from, to := current.Settled, p.id()
			if p.r.hit(200) {
				from = p.id()
			}
			moved, err := p.real.AdvanceReplay(ctx, no, from, to, 0, 0)
			require.NoError(t, err)
			require.Equal(t, p.model.advanceReplay(no, from, to, 0, 0), moved)
		case 3:
			to := durable.ReplayState(p.r.below(4))
			if to.Ended() && p.r.hit(700) {
				to = durable.ReplayRunning
			}
			got, err := p.real.SetReplayState(ctx, no, to)
			want, wantErr := p.model.setReplayState(no, to)
			require.Equal(t, wantErr == nil, err == nil, "%v and %v", wantErr, err)
			require.ErrorIs(t, err, wantErr)
			require.Equal(t, plain(want), plain(got))
		case 4:
			p.purge()
		case 5:
			p.insert()
		}
		p.compareReplays(nos, plain)
	}
	require.NotEmpty(t, nos)
	require.NoError(t, p.real.Close())
}

func (p *storePair) compareReplays(nos []uint32, plain func(durable.Replay) durable.Replay) {
	ctx, t := p.t.Context(), p.t
	for _, no := range nos {
		got, err := p.real.Replay(ctx, no)
		require.NoError(t, err)
		want, err := p.model.replay(no)
		require.NoError(t, err)
		require.Equal(t, plain(want), plain(got))
	}
	after, through := p.id(), p.id()
	sizes, err := p.real.Sizes(ctx, p.channel, after, through, 5)
	require.NoError(t, err)
	require.Equal(t, p.model.sizes(p.channel, after, through, 5), sizes)
	changes, err := p.real.Changes(ctx, 0)
	require.NoError(t, err)
	want := p.model.changes(0)
	require.Len(t, changes.Replays, len(want.Replays))
	for i, r := range changes.Replays {
		require.Equal(t, plain(want.Replays[i]), plain(r))
	}
}
