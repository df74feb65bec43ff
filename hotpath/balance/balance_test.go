package balance

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/redisq"
)

var rule = Rule{Period: 10 * time.Second, Down: 5, Slow: 50, Max: 100}

func TestAPaceFollowsTheFailuresOfAPeriod(t *testing.T) {
	normal := func(perSecond int) durable.Pace { return durable.Pace{Mode: durable.PaceNormal, PerSecond: perSecond} }
	slowed, beating := durable.Pace{Mode: durable.PaceSlow}, durable.Pace{Mode: durable.PaceHeartbeat}
	for name, tc := range map[string]struct {
		from           durable.Pace
		good, strained int
		want           durable.Pace
	}{
		"all succeed":                     {normal(0), 1000, 0, normal(0)},
		"a few fail":                      {normal(0), 960, 40, normal(0)},
		"more than a few: a fifth slower": {normal(0), 940, 60, normal(80)},
		"and again":                       {normal(80), 700, 100, normal(64)},
		"the pace was not used up":        {normal(80), 90, 10, normal(8)},
		"never below one":                 {normal(1), 9, 1, normal(1)},
		"most fail":                       {normal(0), 49, 51, slowed},
		"most of a few fail":              {normal(8), 0, 1, slowed},
		"slow, all fail":                  {slowed, 0, 10, beating},
		"slow, some fail":                 {slowed, 9, 1, slowed},
		"slow, none fails":                {slowed, 10, 0, normal(2)},
		"heartbeat, it fails":             {beating, 0, 1, beating},
		"heartbeat, it succeeds":          {beating, 1, 0, slowed},
		"faster by steps":                 {normal(2), 20, 0, normal(4)},
		"nearly no failures":              {normal(40), 396, 4, normal(80)},
		"some failures: no step":          {normal(40), 390, 10, normal(40)},
		"the last step":                   {normal(64), 640, 0, normal(0)},
	} {
		from := tc.from
		from.Good, from.Strained, from.SinceMs = tc.good, tc.strained, 1000
		require.Equal(t, from, rule.Next(from, 10_999), "%s: within the period", name)
		tc.want.SinceMs = 11_000
		require.Equal(t, tc.want, rule.Next(from, 11_000), name)
	}
	idle := durable.Pace{Mode: durable.PaceHeartbeat, SinceMs: 1000}
	require.Equal(t, durable.Pace{Mode: durable.PaceHeartbeat, SinceMs: 11_000}, rule.Next(idle, 11_000),
		"nothing was learnt")
}

// A shelf is a Store in memory that may fail.
type shelf struct {
	mu     sync.Mutex
	paces  map[uint32]durable.Pace
	url    string // of its consumer; "": any
	broken error
}

func (s *shelf) CountPace(_ context.Context, no uint32, url string, good, strained int, nowMs int64,
	next func(durable.Pace) durable.Pace) (before, after durable.Pace, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return before, after, s.broken
	}
	if s.url != "" && url != s.url {
		return before, after, nil
	}
	p, known := s.paces[no]
	if !known {
		p = durable.Pace{ConsumerNo: no, SinceMs: nowMs}
	}
	p.Good, p.Strained = p.Good+good, p.Strained+strained
	s.paces[no] = next(p)
	return p, s.paces[no], nil
}

func (s *shelf) Paces(context.Context) (out []durable.Pace, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.paces {
		out = append(out, p)
	}
	return out, s.broken
}

func TestEveryBrokerFollowsOnePaceAndOneTellsOfIt(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store := &shelf{paces: map[uint32]durable.Pace{}}
	now := int64(1000)
	told := 0
	var repaced []uint32
	broker := func() *Balancer {
		c := catalogue.New(memstore.Subscribed(), log)
		require.NoError(t, c.Refresh(t.Context()))
		b := New(Options{Rule: rule, Store: store, Catalogue: c, Policies: policy.NewBook(policy.Policy{Adaptive: true}),
			NowMs:   func() int64 { return now },
			Repaced: func(no uint32) { repaced = append(repaced, no) },
			Slowed:  func() { told++ }, Log: log})
		require.NoError(t, b.round(t.Context()))
		return b
	}
	one, two := broker(), broker()
	no := one.o.Catalogue.ConsumerNos()[0]
	round := func() { require.NoError(t, one.round(t.Context())); require.NoError(t, two.round(t.Context())) }
	count := func(b *Balancer, n int, strained bool) {
		for range n {
			b.Count(no, b.o.Catalogue.ConsumerByNo(no).CallbackURL, strained)
		}
	}
	count(one, 10, false)
	count(one, 10, true)
	count(two, 15, true)
	round()
	require.Equal(t, redisq.Rate{}, one.Pace(no), "within the period")
	repaced = nil
	now = 11_000
	count(one, 5, true)
	round()
	require.Equal(t, 1, told)
	require.Equal(t, []uint32{no, no}, repaced)
	for _, b := range []*Balancer{one, two} {
		require.Equal(t, slow, b.Pace(no))
		require.Equal(t, durable.PaceSlow, b.Mode(no))
	}
	now = 21_000
	count(two, 10, true)
	round()
	round()
	require.Equal(t, heartbeat, one.Pace(no))
	require.Equal(t, heartbeat, two.Pace(no))
	require.Equal(t, 1, told)
	require.Equal(t, heartbeat, broker().Pace(no), "a broker that starts learns it")
}

// What was counted at a former URL and is not stored yet, or comes back from there, slows nobody down.
func TestAttemptsAtAFormerURLDoNotCount(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	store, c := &shelf{paces: map[uint32]durable.Pace{}}, catalogue.New(memstore.Subscribed(), log)
	require.NoError(t, c.Refresh(t.Context()))
	b := New(Options{Rule: rule, Store: store, Catalogue: c, Policies: policy.NewBook(policy.Policy{Adaptive: true}),
		NowMs:   func() int64 { return 1000 },
		Repaced: func(uint32) {}, Log: log})
	no := c.ConsumerNos()[0]
	store.url = "http://present.example/"
	for range 10 {
		b.Count(no, "http://former.example/", true)
	}
	b.Count(no, store.url, true)
	require.NoError(t, b.round(t.Context()))
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, 1, store.paces[no].Strained)
}

func TestABrokerThatHasReadNothingIsSlow(t *testing.T) {
	s := &shelf{paces: map[uint32]durable.Pace{}, broken: errors.New("away")}
	b := New(Options{Rule: rule, Store: s, Catalogue: catalogue.New(&memstore.Store{}, slog.New(slog.DiscardHandler)),
		Policies: policy.NewBook(policy.Policy{Adaptive: true}),
		NowMs:    func() int64 { return 1 }, Repaced: func(uint32) {}, Log: slog.New(slog.DiscardHandler)})
	require.Equal(t, slow, b.Pace(1))
	b.Count(1, "", true)
	require.Error(t, b.round(t.Context()))
	require.Equal(t, slow, b.Pace(1))
	s.broken = nil
	require.NoError(t, b.round(t.Context()))
	require.Equal(t, redisq.Rate{}, b.Pace(1))
	require.Equal(t, 1, s.paces[1].Strained, "the count was kept")
}
