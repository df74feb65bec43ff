package simulation

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A bulkPair is one bulk on SQLite and in the model, with the owner that took it last.
type bulkPair struct {
	*storePair
	id    ident.ID
	owner durable.BulkOwner
}

// The same of bulks: they are owned, received, expanded and ended as in SQLite.
func TestBulkModelIsWhatTheStoreDoes(t *testing.T) {
	p := &bulkPair{storePair: newStorePair(t, 4)}
	ctx := t.Context()
	ended := map[durable.BulkState]int{}
	for range 600 {
		if b, err := p.real.BulkByID(ctx, p.id); err != nil || b.State.Over() {
			if err == nil {
				ended[b.State]++
			}
			p.create()
		}
		p.stepOne()
		p.compareBulk()
	}
	require.NotZero(t, ended[durable.BulkDone])
	require.NotZero(t, ended[durable.BulkFailed])
	require.NoError(t, p.real.Close())
}

// create begins a bulk whose body is there, or is fetched.
func (p *bulkPair) create() {
	b := durable.Bulk{BulkOwner: durable.BulkOwner{ID: p.next()}, ChannelNo: p.channel, ProducerNo: 1, Spec: []byte("{}"),
		State: durable.BulkFetching}
	var body []byte
	if p.r.hit(500) {
		b.State, b.Total, body = durable.BulkRunning, 9, []byte("rows")
	}
	for range 2 { // the second time after a lost answer
		require.NoError(p.t, p.real.CreateBulk(p.t.Context(), &b, body))
		p.model.createBulk(b, body)
	}
	p.id, p.owner = b.ID, durable.BulkOwner{ID: b.ID}
}

func (p *bulkPair) next() ident.ID {
	p.seq++
	id := ident.AtMillis(time.Now().UnixMilli())
	id[8], id[9] = byte(p.seq>>8), byte(p.seq)
	return id
}

// held is the last owner, or one that has never been.
func (p *bulkPair) held() durable.BulkOwner {
	h := p.owner
	if p.r.hit(100) {
		h.Fence++
	}
	if p.r.hit(100) {
		h.Owner[0]++
	}
	return h
}

func (p *bulkPair) same(want, got error) {
	p.t.Helper()
	require.Equal(p.t, want == nil, got == nil, "%v and %v", want, got)
	require.Equal(p.t, errors.Is(want, durable.ErrBulkLost), errors.Is(got, durable.ErrBulkLost), "%v and %v", want, got)
	require.Equal(p.t, errors.Is(want, durable.ErrStale), errors.Is(got, durable.ErrStale), "%v and %v", want, got)
}

func (p *bulkPair) stepOne() {
	ctx, h := p.t.Context(), p.held()
	changed := func(got error, change func(b *storedBulk, nowMs int64) error) {
		p.t.Helper()
		p.same(p.model.withBulk(h, change), got)
	}
	switch p.r.below(14) {
	case 0, 1, 2:
		p.claim()
	case 3:
		no := int64(p.r.below(3))
		p.same(p.model.addBulkChunk(h, no, []byte("x")), p.real.AddBulkChunk(ctx, h, no, []byte("x")))
	case 4:
		p.same(p.model.runBulk(h, 9), p.real.RunBulk(ctx, h, 9))
	case 5:
		err := p.real.ReleaseBulk(ctx, h, 0, 2, "why")
		require.NoError(p.t, err)
		_ = p.model.withBulk(h, func(b *storedBulk, nowMs int64) error {
			b.NextMs, b.Tries, b.Reason = max(b.NextMs, nowMs), 2, "why"
			b.disown()
			return nil
		})
	case 6:
		paused := p.r.hit(300)
		_, err := p.real.PauseBulk(ctx, p.id, paused)
		require.NoError(p.t, err)
		p.model.pauseBulk(p.id, paused)
	case 7:
		if p.r.hit(300) {
			changed(p.real.FailBulk(ctx, h, "bad"), func(b *storedBulk, _ int64) error {
				b.State, b.Paused, b.Reason = durable.BulkFailed, false, "bad"
				b.disown()
				return nil
			})
		}
	case 8:
		changed(p.real.RenewBulk(ctx, h), func(b *storedBulk, nowMs int64) error {
			b.LeaseMs = nowMs + durable.BulkLease.Milliseconds()
			return nil
		})
	default:
		p.expand(h)
	}
}

func (p *bulkPair) claim() {
	owner := [16]byte{byte(p.r.below(250) + 1)}
	of := durable.BulkQueue{State: durable.BulkFetching + durable.BulkState(p.r.below(2)), ProducerNo: 1}
	now := p.model.nowMs()
	next, due, err := p.real.NextBulkQueue(p.t.Context(), durable.BulkQueue{State: of.State}, now)
	require.NoError(p.t, err)
	q, ready := p.model.nextBulkQueue(durable.BulkQueue{State: of.State}, now)
	require.Equal(p.t, q, next)
	require.Equal(p.t, ready, due)
	got, err := p.real.ClaimBulk(p.t.Context(), owner, of)
	require.NoError(p.t, err)
	want := p.model.claimBulk(owner, of)
	require.Equal(p.t, want == nil, got == nil)
	if got != nil {
		require.Equal(p.t, want.BulkOwner, got.BulkOwner)
		require.Equal(p.t, want.At, got.At)
		p.owner = got.BulkOwner
	}
}

// expand makes a step of three rows, from the checkpoint or elsewhere, twice as after a lost answer.
func (p *bulkPair) expand(h durable.BulkOwner) {
	at := p.model.bulks[p.id].At
	if p.r.hit(100) {
		at.Row++
	}
	step := durable.BulkStep{By: h, From: at, To: durable.BulkPosition{Row: at.Row + 4, Byte: at.Byte + 40},
		Last: p.r.hit(150),
		Bad:  []durable.BadRow{{Row: at.Row + 4, Reason: "bad"}}, Reason: func(error) string { return "refused" }}
	stale := p.r.hit(100)
	rows := make([]durable.Message, 3)
	for i := range rows {
		rows[i] = durable.Message{ID: p.next(), ChannelNo: p.channel, ProducerNo: 1, Audience: len(p.consumers),
			ContentType: "t", Payload: fmt.Appendf(nil, "%d", p.r.below(2))}
		switch {
		case stale:
			rows[i].Audience++
		case p.r.hit(400):
			rows[i].Key = fmt.Sprintf("k%d", p.r.below(30))
		}
		m := rows[i]
		step.Messages, step.Rows = append(step.Messages, &m), append(step.Rows, at.Row+1+int64(i))
	}
	for range 2 {
		sent := step
		err := p.real.StepBulk(p.t.Context(), p.lease, &sent)
		results, want := p.model.stepBulk(p.lease, &step, append([]durable.Message(nil), rows...))
		p.same(want, err)
		if err != nil {
			return
		}
		require.Len(p.t, sent.Results, len(results))
		for i := range results {
			require.Equal(p.t, kindOf(results[i]), kindOf(sent.Results[i]))
		}
	}
}

func (p *bulkPair) compareBulk() {
	plain := func(b durable.Bulk) durable.Bulk { // without what the clocks decide
		b.NextMs, b.LeaseMs, b.ChangedMs = 0, 0, 0
		return b
	}
	got, err := p.real.BulkByID(p.t.Context(), p.id)
	require.NoError(p.t, err)
	want := p.model.bulks[p.id].Bulk
	require.Equal(p.t, plain(want), plain(*got))
}
