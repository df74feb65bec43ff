package simulation

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A storePair is a store twice: SQLite and the model.
type storePair struct {
	t         *testing.T
	r         chance
	real      *durable.Store
	model     *store
	lease     durable.NodeLease
	channel   uint32
	consumers []durable.Consumer
	ids       []ident.ID // of messages that may be stored
	seq       int
	now       time.Time // of both, whatever time a step takes
}

// What the simulation believes of the store is what it does: random operations
// have the same answers on SQLite, which passes the suite that MySQL passes.
func TestStoreModelIsWhatTheStoreDoes(t *testing.T) {
	for seed := range uint64(2) {
		p := newStorePair(t, seed)
		for range 100 {
			p.step()
			p.compare()
		}
		require.NoError(t, p.real.Close())
	}
}

func newStorePair(t *testing.T, seed uint64) *storePair {
	ctx := t.Context()
	p := &storePair{t: t, r: draw(seed, word("store model")), now: time.Now()}
	p.model = newStore(func() time.Time { return p.now })
	var err error
	p.real, err = durable.OpenSQLite(ctx, t.TempDir(), durable.Options{Clock: func() int64 { return p.now.UnixMilli() }})
	require.NoError(t, err)
	real := p.real
	require.NoError(t, real.Migrate(ctx))
	p.lease, err = real.LeaseNode(ctx, "n", time.Hour)
	require.NoError(t, err)
	p.model.nodes = []durable.Node{{No: p.lease.No, Token: p.lease.Token, Expires: p.lease.Expires}}
	ch, _, err := real.PutChannel(ctx, durable.Put{ID: "c1", NewToken: "t"})
	require.NoError(t, err)
	p.channel = p.model.putChannel("c1")
	require.Equal(t, ch.No, p.channel)
	p.join()
	return p
}

func (p *storePair) join() {
	url := "http://k.example/"
	id := fmt.Sprintf("k%d", len(p.consumers)+1)
	since := none
	if len(p.ids) > 0 && p.r.hit(500) {
		since = p.id()
	}
	put := durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"}, ChannelID: "c1", CallbackURL: &url}
	if since != none {
		put.Since = &since
	}
	k, _, err := p.real.PutConsumer(p.t.Context(), put)
	require.NoError(p.t, err)
	require.Equal(p.t, k.No, p.model.putConsumer(p.channel, durable.Push, "", since).No, "")
	p.consumers = append(p.consumers, k)
}

func (p *storePair) step() {
	ctx, t := p.t.Context(), p.t
	p.now = p.now.Add(10 * time.Millisecond)
	k := p.consumers[p.r.below(len(p.consumers))]
	switch p.r.below(9) {
	case 0, 1, 2:
		p.insert()
	case 3, 4, 5:
		p.record()
	case 6:
		if len(p.ids) == 0 {
			return
		}
		ids := []ident.ID{p.id(), p.id()}
		now := p.now.UnixMilli()
		if p.r.hit(500) {
			got, err := p.real.Redrive(ctx, k.No, ids, now)
			require.NoError(t, err)
			require.Equal(t, p.model.reopen(k.No, ids, now, true), got)
			return
		}
		got, err := p.real.Revive(ctx, k.No, ids[0], now)
		want := p.model.reopen(k.No, ids[:1], now, false)
		require.Equal(t, len(want) == 0, errors.Is(err, durable.ErrNotFound))
		if len(want) > 0 {
			require.Equal(t, want[0], got)
		}
	case 7:
		p.purge()
	case 8:
		if len(p.consumers) < 3 && p.r.hit(200) {
			p.join()
		}
		if len(p.ids) > 0 {
			through := p.id()
			move := []durable.Settled{{ConsumerNo: k.No, Through: through}}
			if p.r.hit(800) {
				move[0].After = p.model.readMarks()[k.No]
			}
			others, err := p.real.SaveWatermarks(ctx, durable.Clock{}, move)
			require.NoError(t, err)
			require.Equal(t, p.model.saveMarks(durable.Clock{}, move), others)
		}
	}
}

func (p *storePair) purge() {
	all := make([]*durable.Consumer, len(p.consumers))
	for i := range p.consumers {
		all[i] = &p.consumers[i]
	}
	job := durable.Purge{ChannelNo: p.channel, Consumers: all, Through: ident.Max(), Limit: 1 + p.r.below(10)}
	if len(p.ids) > 0 {
		job.After = p.id()
		if p.r.hit(500) {
			job.Through = p.id()
		}
	}
	if p.r.hit(500) {
		job.DeadBeforeMs = 1002 // outcomes have 1000 to 1002
	}
	if job.After.Compare(job.Through) >= 0 {
		return
	}
	got, err := p.real.Purge(p.t.Context(), job)
	require.NoError(p.t, err)
	require.Equal(p.t, p.model.purge(job, func(*durable.Message) {}), got)
}

func (p *storePair) id() ident.ID { return p.ids[p.r.below(len(p.ids))] }

// insert stores a few messages, some of which the store refuses.
func (p *storePair) insert() {
	var batch []*durable.Message
	var rows []durable.Message
	lease, audience, age := p.lease, len(p.consumers), int64(0)
	switch p.r.below(8) {
	case 0:
		audience--
	case 1:
		lease.Token[0]++
	case 2:
		age = 5000
	}
	for range 1 + p.r.below(3) {
		p.seq++
		m := durable.Message{ID: ident.AtMillis(p.now.UnixMilli() - age), ChannelNo: p.channel, ProducerNo: 1,
			Audience: audience,
			Priority: max(p.r.below(5)-2, 0), ContentType: "t", Payload: fmt.Appendf(nil, "%d", p.seq)}
		m.ID[8], m.ID[9] = byte(p.seq>>8), byte(p.seq)
		if p.r.hit(400) { // often taken, by the same message or another one
			m.Key = fmt.Sprintf("k%d", p.r.below(12))
			m.ProducerNo, m.Priority = 1+uint32(p.r.below(8)/7), p.r.below(8)/7
			m.Payload = fmt.Appendf(nil, "payload %d", p.r.below(8)/7)
			m.Headers = []byte([]string{"A:1\nB:2\n", "B:2\na:1\n", "A:1\n"}[p.r.below(9)/4])
		}
		if p.r.hit(300) {
			m.Headers = durable.OrderingLine(fmt.Sprintf("o%d", p.r.below(3)), m.Headers)
		}
		if len(p.ids) > 0 && p.r.hit(100) { // again, or an ID that somebody else has
			m = p.model.messagesByID(p.channel, p.ids[len(p.ids)-1:])[0]
			if p.r.hit(500) {
				m.Payload = []byte("other")
			}
		}
		batch = append(batch, &m)
		rows = append(rows, m)
	}
	got := p.real.Insert(p.t.Context(), lease, batch)
	for i, want := range p.model.insert(lease, rows) {
		require.Equal(p.t, kindOf(want), kindOf(got[i]), "%v and %v", want, got[i])
		if want == nil && !slices.Contains(p.ids, rows[i].ID) {
			p.ids = append(p.ids, rows[i].ID)
		}
	}
}

// kindOf is what a caller can tell from a result.
func kindOf(err error) string {
	var dup *durable.DuplicateError
	switch {
	case errors.As(err, &dup):
		return "duplicate of " + dup.ID.String()
	case errors.Is(err, durable.ErrStale):
		return "stale"
	case errors.Is(err, durable.ErrDispatched):
		return "dispatched"
	case errors.Is(err, durable.ErrNotFound):
		return "not found"
	case err != nil:
		return err.Error()
	}
	return ""
}

func (p *storePair) record() {
	if len(p.ids) == 0 {
		return
	}
	var rows []durable.Outcome
	for range 1 + p.r.below(4) {
		o := durable.Outcome{Kind: durable.OutcomeKind(p.r.below(4)), ConsumerNo: p.consumers[p.r.below(len(p.consumers))].No,
			ID:       p.id(),
			Priority: p.r.below(3), Attempts: 1 + p.r.below(4), AtMs: 1000 +
				int64(p.r.below(3)), StatusCode: 500, Tracked: p.r.hit(500)}
		if o.Kind == durable.OutcomeRetry || o.Kind == durable.OutcomeGivenBack {
			o.NextMs = 2000 + int64(p.r.below(1000))
		}
		if o.Kind != durable.OutcomeDelivered {
			o.Error = "e"
		}
		if o.Kind == durable.OutcomeRetry || o.Kind == durable.OutcomeDead {
			o.Phase = []durable.Phase{durable.PhaseAnswered, durable.PhaseLeaseEnded}[p.r.below(2)]
		}
		if o.Kind == durable.OutcomeDead {
			o.Reason = []durable.Reason{durable.AttemptsExhausted, durable.Expired, durable.QueuePurged}[p.r.below(3)]
		}
		if o.Kind != durable.OutcomeRetry {
			o.Worker = []string{"", "w;1"}[p.r.below(2)]
		}
		if !slices.ContainsFunc(rows, func(e durable.Outcome) bool { return e.ID == o.ID && e.ConsumerNo == o.ConsumerNo }) {
			rows = append(rows, o)
		}
	}
	require.NoError(p.t, p.real.Record(p.t.Context(), rows))
	p.model.record(rows)
}

// compare reads everything that the core reads.
func (p *storePair) compare() {
	ctx, t := p.t.Context(), p.t
	after, through := ident.ID{}, ident.Max()
	if len(p.ids) > 1 && p.r.hit(500) {
		after, through = p.id(), p.id()
	}
	heads, err := p.real.Heads(ctx, p.channel, after, through, 50)
	require.NoError(t, err)
	require.Equal(t, p.model.heads(p.channel, -1, after, through, 50), heads)
	for priority := range 2 {
		heads, err = p.real.LevelHeads(ctx, p.channel, priority, after, through, 50)
		require.NoError(t, err)
		require.Equal(t, p.model.heads(p.channel, priority, after, through, 50), heads)
	}
	levels, err := p.real.Levels(ctx, p.channel)
	require.NoError(t, err)
	require.Equal(t, p.model.levels(p.channel), levels)
	latest, err := p.real.LatestMessages(ctx, 0, 10)
	require.NoError(t, err)
	require.Equal(t, p.model.latest(0, 10), latest)
	list, err := p.real.ListMessages(ctx, p.channel, after, 3)
	require.NoError(t, err)
	require.Equal(t, p.model.list(p.channel, after, 3), list)
	links, err := p.real.Links(ctx, p.channel, p.ids)
	require.NoError(t, err)
	require.Equal(t, p.model.linksOf(p.channel, p.ids), links)
	next, err := p.real.Successors(ctx, p.channel, p.ids)
	require.NoError(t, err)
	slices.SortFunc(next, func(a, b durable.Head) int { return a.ID.Compare(b.ID) })
	require.Equal(t, p.model.successors(p.channel, p.ids), next)
	marks, err := p.real.Watermarks(ctx)
	require.NoError(t, err)
	require.Equal(t, p.model.readMarks(), marks)
	p.compareReceipts()
	for _, k := range p.consumers {
		p.compareJobs(k, after, through)
	}
}

// compareReceipts stores a receipt, which may be there, and reads all.
func (p *storePair) compareReceipts() {
	var ids []durable.ReceiptID
	for i := range 5 {
		ids = append(ids, durable.ReceiptID{byte(i)})
	}
	one := durable.Receipt{ID: ids[p.r.below(5)], ChannelNo: p.channel, Message: fmt.Sprint(p.r.below(100))}
	require.NoError(p.t, p.real.StoreReceipts(p.t.Context(), durable.Clock{}, []durable.Receipt{one}))
	p.model.storeReceipts([]durable.Receipt{one})
	got, err := p.real.Receipts(p.t.Context(), ids)
	require.NoError(p.t, err)
	require.Equal(p.t, p.model.receiptsOf(ids), got)
}

func (p *storePair) compareJobs(k durable.Consumer, after, through ident.ID) {
	ctx, t := p.t.Context(), p.t
	states, err := p.real.JobStates(ctx, k.No, p.ids)
	require.NoError(t, err)
	require.Equal(t, p.model.jobStates(k.No, p.ids), states)
	open, err := p.real.OpenJobs(ctx, k.No, after, 5)
	require.NoError(t, err)
	require.Equal(t, len(p.model.openJobs(k.No, after, 5)), len(open))
	for i, j := range p.model.openJobs(k.No, after, 5) {
		require.Equal(t, j, open[i])
	}
	dead, err := p.real.DeadJobs(ctx, k.No, after, 5)
	require.NoError(t, err)
	require.Equal(t, len(p.model.deadJobs(k.No, after, 5)), len(dead))
	for i, j := range p.model.deadJobs(k.No, after, 5) {
		dead[i].Answer, j.Answer = nil, nil
		require.Equal(t, j, dead[i])
	}
	_, all, err := p.real.AllDelivered(ctx, k, after, through)
	require.NoError(t, err)
	require.Equal(t, p.model.allDelivered(k, after, through), all)
	for _, priority := range []int{0, 5} {
		for _, limit := range []int{1, 3, 1000} {
			last, all, err := p.real.LevelDelivered(ctx, k, priority, after, through, limit)
			require.NoError(t, err)
			wantLast, wantAll := p.model.levelDelivered(k, priority, after, through, limit)
			require.Equal(t, wantLast, last)
			require.Equal(t, wantAll, all)
		}
	}
}
