package verify

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

// A table is a store whose messages have one byte each. It counts what it is asked.
type table struct {
	states  map[ident.ID]durable.JobState
	removed map[ident.ID]bool
	ttl     int64 // of every message

	asked, loaded, listed int
}

func (s *table) JobStates(_ context.Context, _ uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error) {
	s.asked += len(ids)
	return s.states, nil
}

func (s *table) MessagesUpTo(_ context.Context, _ uint32, ids []ident.ID, budget int) (msgs []durable.Message, read int,
	err error) {
	for ; read < len(ids) && (budget > 0 || read == 0); read++ {
		s.loaded++
		if !s.removed[ids[read]] {
			msgs = append(msgs, durable.Message{ID: ids[read], Payload: []byte("x"), TTLMs: s.ttl})
			budget--
		}
	}
	return msgs, read, nil
}

func (s *table) Job(_ context.Context, _ *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	s.asked++
	return durable.StoredJob{JobState: s.states[id], Stored: !s.removed[id], TTLMs: s.ttl}, nil
}

func (s *table) ListMessages(_ context.Context, _ uint32, from ident.ID, _ int) ([]durable.Message, error) {
	s.listed++
	if s.removed[from] {
		return nil, nil
	}
	return []durable.Message{{ID: from}}, nil
}

const now, kept = 100_000, 10 // ms

var consumer = &durable.Consumer{No: 1, ChannelNo: 1}

func verifierOf(s *table) *Verifier {
	return &Verifier{Store: s, Cache: NewCache(1 << 20), NowMs: func() int64 { return now }, Kept: kept * 1e6,
		Policies: policy.NewBook(policy.Policy{})}
}

// Whatever is known of a job, one and many are decided alike.
func TestOneAndManyGetTheSameVerdict(t *testing.T) {
	const young, old = now, now - kept - 1
	for name, c := range map[string]struct {
		at      int64
		status  durable.JobStatus
		removed bool
		cached  bool
		want    Verdict
	}{
		"open":                         {at: young, want: Deliver},
		"failed before":                {at: young, status: durable.Open, want: Deliver},
		"cached":                       {at: young, cached: true, want: Deliver},
		"delivered":                    {at: young, status: durable.Delivered, want: Over},
		"delivered, and cached":        {at: young, status: durable.Delivered, cached: true, want: Over},
		"dead":                         {at: young, status: durable.Dead, cached: true, want: Over},
		"old":                          {at: old, want: Deliver},
		"young and gone":               {at: young, removed: true, want: Removed},
		"old and removed":              {at: old, removed: true, want: Removed},
		"old and removed, yet cached":  {at: old, removed: true, cached: true, want: Removed},
		"old, delivered and removed":   {at: old, status: durable.Delivered, removed: true, want: Over},
		"old, failed before, and kept": {at: old, status: durable.Open, cached: true, want: Deliver},
	} {
		t.Run(name, func(t *testing.T) {
			id := ident.AtMillis(c.at)
			s := &table{states: map[ident.ID]durable.JobState{id: {Status: c.status, Attempts: 3}},
				removed: map[ident.ID]bool{id: c.removed}}
			v := verifierOf(s)
			if c.cached {
				v.Cache.Put(&durable.Message{ID: id, Audience: 2, Payload: []byte("x")})
				v.Cache.SetFresh(id, 7)
			}
			one := Candidate{ID: id}
			require.False(t, v.Fresh(consumer, &one, 7), "Redis has touched it")
			require.NoError(t, v.One(t.Context(), consumer, &one))
			require.Zero(t, s.loaded, "no payload")
			many := []Candidate{{ID: id}}
			n, err := v.Verify(t.Context(), consumer, many, 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, c.want, one.Verdict)
			require.Equal(t, c.want, many[0].Verdict)
			require.Equal(t, c.want != Deliver, one.Verdict.Ends())
			require.Equal(t, c.want == Deliver, many[0].Message != nil)
			require.Equal(t, 4, many[0].Attempt(redisq.Lease{Attempt: 1}), "the store has counted three")
			require.Equal(t, 9, many[0].Attempt(redisq.Lease{Attempt: 9}))
		})
	}
}

// After the store went back, no message until then is believed to be stored.
func TestAMessageThatTheStoreLostIsNotDeliveredFromMemory(t *testing.T) {
	lost, stored, later := ident.AtMillis(now-1), ident.AtMillis(now), ident.AtMillis(now+2*goneBackMargin.Milliseconds())
	s := &table{removed: map[ident.ID]bool{lost: true}}
	v := verifierOf(s)
	for _, id := range []ident.ID{lost, stored, later} {
		v.Cache.Put(&durable.Message{ID: id, Audience: 2, Payload: []byte("x")})
		v.Cache.SetFresh(id, 7)
	}
	v.StoreWentBack()
	for id, want := range map[ident.ID]Verdict{lost: Removed, stored: Deliver} {
		c := Candidate{ID: id, Untouched: true}
		require.False(t, v.Fresh(consumer, &c, 7))
		require.NoError(t, v.One(t.Context(), consumer, &c))
		require.Equal(t, want, c.Verdict)
		many := []Candidate{{ID: id, Untouched: true}}
		_, err := v.Verify(t.Context(), consumer, many, 1)
		require.NoError(t, err)
		require.Equal(t, want, many[0].Verdict)
	}
	require.True(t, v.Fresh(consumer, &Candidate{ID: later, Untouched: true}, 7))
}

func TestOnlyFreshJobsGoOutUnasked(t *testing.T) {
	id := ident.AtMillis(now)
	for name, c := range map[string]struct {
		lease       redisq.Lease
		incarnation uint64
		fresh       bool
	}{
		"fresh":            {redisq.Lease{ID: id, Attempt: 1}, 7, true},
		"second attempt":   {redisq.Lease{ID: id, Attempt: 2}, 7, false},
		"flagged":          {redisq.Lease{ID: id, Attempt: 1, Flags: redisq.FlagVerify}, 7, false},
		"Redis lost state": {redisq.Lease{ID: id, Attempt: 1}, 8, false},
		"not cached":       {redisq.Lease{ID: ident.AtMillis(now + 1), Attempt: 1}, 7, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &table{}
			v := verifierOf(s)
			v.Cache.Put(&durable.Message{ID: id, Audience: 1})
			v.Cache.SetFresh(id, 7)
			cs := Leased([]redisq.Lease{c.lease})
			require.Equal(t, c.fresh, v.Fresh(consumer, &cs[0], c.incarnation))
			n, err := v.Verify(t.Context(), consumer, cs, 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, c.fresh, s.asked == 0)
			require.Equal(t, Deliver, cs[0].Verdict)
		})
	}
}

// The budget ends the decided part. What is over behind it needs no message, and is known.
func TestTheBudgetBoundsWhatIsLoaded(t *testing.T) {
	ids := make([]ident.ID, 6)
	for i := range ids {
		ids[i] = ident.AtMillis(int64(now + i))
	}
	s := &table{states: map[ident.ID]durable.JobState{ids[0]: {Status: durable.Dead}, ids[5]: {Status: durable.Delivered}},
		removed: map[ident.ID]bool{ids[2]: true}}
	v := verifierOf(s)
	v.Cache.Put(&durable.Message{ID: ids[3], Audience: 1})
	cs := make([]Candidate, len(ids))
	for i, id := range ids {
		cs[i].ID = id
	}
	n, err := v.Verify(t.Context(), consumer, cs, 1)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	verdicts := make([]Verdict, len(cs))
	for i := range cs {
		verdicts[i] = cs[i].Verdict
	}
	require.Equal(t, []Verdict{Over, Deliver, Undecided, Deliver, Undecided, Over}, verdicts)
	n, err = v.Verify(t.Context(), consumer, cs[n:], 0)
	require.NoError(t, err)
	require.Equal(t, 2, n, "the first message is loaded whatever the budget, and a removed one counts")
	require.Equal(t, Removed, cs[2].Verdict)
}

func TestWhatIsDecidedIsNotAskedAgain(t *testing.T) {
	s := &table{}
	v := verifierOf(s)
	cs := []Candidate{{ID: ident.AtMillis(now)}, {ID: ident.AtMillis(now + 1)}}
	for range 2 {
		n, err := v.Verify(t.Context(), consumer, cs, 10)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	}
	require.Equal(t, 2, s.asked)
	require.Equal(t, 2, s.loaded)
}

// The path of a push job that nothing has happened to.
func TestAFreshJobCostsNoMemory(t *testing.T) {
	v := verifierOf(&table{})
	m := &durable.Message{ID: ident.AtMillis(now), Audience: 1}
	v.Cache.Put(m)
	v.Cache.SetFresh(m.ID, 7)
	lease := redisq.Lease{ID: m.ID, Attempt: 1}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c := OfLease(&lease)
		if !v.Fresh(consumer, &c, 7) || c.Message != m {
			t.Fatal("not fresh")
		}
	}))
}

// The shorter of the two times to live counts, from the commit or the last redrive, on every
// way to a verdict.
func TestAnExpiredJobIsNotDelivered(t *testing.T) {
	const tenSeconds = 10_000
	mortal := &durable.Consumer{No: 1, ChannelNo: 1, Policy: "ttl=10s"}
	book := policy.NewBook(policy.Policy{})
	record, err := book.Merge("", map[string]string{"ttl": "10s"}, time.Now())
	require.NoError(t, err)
	mortal.Policy = record
	for name, c := range map[string]struct {
		k        *durable.Consumer
		age      int64
		ttl      int64 // of the message
		redriven int64 // that long ago
		want     Verdict
		expiry   int64 // from now
	}{
		"no time to live":            {consumer, 99_000, 0, 0, Deliver, -now},
		"young":                      {mortal, tenSeconds - 1, 0, 0, Deliver, 1},
		"old":                        {mortal, tenSeconds, 0, 0, Expired, 0},
		"an old message":             {consumer, 500, 500, 0, Expired, 0},
		"the message's is shorter":   {mortal, 500, 500, 0, Expired, 0},
		"the consumer's is shorter":  {mortal, tenSeconds, 20_000, 0, Expired, 0},
		"redriven":                   {mortal, 50_000, 0, 3000, Deliver, 7000},
		"redriven long ago":          {mortal, 50_000, 0, tenSeconds, Expired, 0},
		"redriven, an old message":   {consumer, 50_000, 500, 500, Expired, 0},
		"redriven, a young message ": {consumer, 50_000, 500, 400, Deliver, 100},
	} {
		t.Run(name, func(t *testing.T) {
			id := ident.AtMillis(now - c.age)
			state := durable.JobState{}
			if c.redriven > 0 {
				state = durable.JobState{Status: durable.Open, RedrivenMs: now - c.redriven}
			}
			v := verifierOf(&table{states: map[ident.ID]durable.JobState{id: state}, ttl: c.ttl})
			v.Policies, v.Kept = book, time.Hour
			one, loaded, cached := Candidate{ID: id}, []Candidate{{ID: id}}, []Candidate{{ID: id}}
			require.NoError(t, v.One(t.Context(), c.k, &one))
			_, err := v.Verify(t.Context(), c.k, loaded, 1)
			require.NoError(t, err)
			v.Cache.Put(&durable.Message{ID: id, Audience: 1, TTLMs: c.ttl})
			_, err = v.Verify(t.Context(), c.k, cached, 1)
			require.NoError(t, err)
			all := []Candidate{one, loaded[0], cached[0]}
			if c.redriven == 0 {
				v.Cache.SetFresh(id, 7)
				fresh := Candidate{ID: id, Untouched: true}
				require.Equal(t, c.want == Deliver, v.Fresh(c.k, &fresh, 7))
				all = append(all, fresh)
			}
			for _, got := range all {
				require.Equal(t, c.want, got.Verdict)
				require.Equal(t, now+c.expiry, got.Expiry)
				require.False(t, got.Verdict.Ends())
			}
		})
	}
}
