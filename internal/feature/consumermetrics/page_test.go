package consumermetrics

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A rig is a door and all that it asks.
type rig struct {
	durable.Changes
	book   *metrics.Book
	sample *sampler.Sample
	holds  map[uint32]durable.Hold
	now    time.Time
}

func (r *rig) Known() map[uint32]durable.Hold { return r.holds }
func (r *rig) Local(no uint32) presence.Presence {
	if no%2 == 0 {
		return presence.Presence{}
	}
	return presence.Presence{Claimed: r.now.Add(-time.Minute), Moved: r.now.Add(-3 * time.Second),
		Workers: make([]presence.Seen, 2)}
}
func (r *rig) Mode(uint32) durable.PaceMode { return durable.PaceHeartbeat }
func (r *rig) Pace(uint32) redisq.Rate      { return redisq.Rate{N: 1, Per: time.Minute} }

// A source is the store of the catalogue.
type source struct{ of durable.Changes }

func (s source) Changes(context.Context, int64) (durable.Changes, error) { return s.of, nil }
func (s source) Extent(context.Context) (durable.Extent, error)          { return durable.Extent{}, nil }
func (s source) Touch(context.Context, durable.Numbers) error            { return nil }

// newRig has a channel "c<i>" for each number, with so many push consumers.
func newRig(of ...int) *rig {
	r := &rig{book: metrics.NewBook(nil), holds: map[uint32]durable.Hold{}, now: time.UnixMilli(1_700_000_000_000)}
	r.Version = 1
	for i, n := range of {
		r.Channels = append(r.Channels, durable.Channel{No: uint32(i + 1), ID: fmt.Sprint("c", i+1), Audience: n})
		for j := range n {
			no := uint32(len(r.Consumers) + 1)
			r.Consumers = append(r.Consumers, durable.Consumer{No: no, ChannelNo: uint32(i + 1), Position: j,
				ID: fmt.Sprintf("k%05d", no), Type: durable.Push})
		}
	}
	r.sample = &sampler.Sample{At: r.now.Add(-4 * time.Second), Of: map[uint32]sampler.Level{}}
	for i := range r.Consumers {
		r.sample.Of[r.Consumers[i].No] = sampler.Level{Known: true}
	}
	return r
}

func (r *rig) door(t testing.TB) *Door {
	cat := catalogue.New(source{r.Changes}, slog.New(slog.DiscardHandler))
	require.NoError(t, cat.Refresh(context.Background()))
	return New(Options{Catalogue: cat, Book: r.book, Latest: func() *sampler.Sample { return r.sample }, Holds: r,
		Presence: r, Rates: r, Policies: policy.NewBook(policy.Policy{}), NowMs: r.now.UnixMilli})
}

// scrape reads the page as Prometheus does.
func (r *rig) scrape(t testing.TB, channel string, limit int) map[string]*dto.MetricFamily {
	t.Helper()
	page, err := r.door(t).Write(channel, limit)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	require.NoError(t, err, "%s", page)
	return families
}

// names are the consumers that a family has, in the order of the page.
func names(f *dto.MetricFamily) (out []string) {
	for _, m := range f.GetMetric() {
		out = append(out, m.GetLabel()[1].GetValue())
	}
	return out
}

// of returns the values of a family by its last label.
func of(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		labels := m.GetLabel()
		out[labels[len(labels)-1].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return out
}

func TestThePageSaysWhatIsKnownOfAConsumer(t *testing.T) {
	r := newRig(1)
	k := &r.Consumers[0]
	k.State, k.Policy = durable.StateProbing, policyOf(t, "adaptive", "true", "maxAge", "90s")
	r.Channels[0].Paused = true
	r.holds[k.No] = durable.Hold{ConsumerNo: k.No, UntilMs: r.now.UnixMilli() + 1500}
	r.sample.Of[k.No] = sampler.Level{Waiting: 5, Delayed: 2, InFlight: 3, Dead: 7, Known: true,
		Oldest: r.sample.At.Add(-90 * time.Second)}
	r.book.Limited(k.No)
	r.book.Queued(k.No, 11)
	outcomes := []durable.Outcome{{Kind: durable.OutcomeDelivered, DurationMs: 3, StatusCode: 200},
		{Kind: durable.OutcomeDelivered, DurationMs: 40_000, StatusCode: 200}, {Kind: durable.OutcomeGivenBack},
		{Kind: durable.OutcomeRetry}, {Kind: durable.OutcomeRetry},
		{Kind: durable.OutcomeDead, Phase: durable.PhaseLeaseEnded}}
	for i := range outcomes {
		outcomes[i].ConsumerNo = k.No
	}
	r.book.Ended(outcomes)
	r.book.LeasesLost(k.No, 1)
	f := r.scrape(t, "", MostConsumers)
	for name, want := range map[string]float64{"oldest_waiting_seconds": 90, "waiting": 5, "delayed": 2, "in_flight": 3,
		"dead": 7, "max_age_seconds": 90, "limited_total": 1, "accepted_total": 11, "leases_lost_total": 2,
		"held_seconds": 1.5} {
		require.Equal(t, map[string]float64{"k00001": want}, of(f[prefix+name]), name)
	}
	require.Equal(t, map[string]float64{"delivered": 2, "failed": 2, "dead": 1, "lost": 1, "given_back": 1},
		of(f[prefix+"attempts_total"]))
	require.Equal(t, map[string]float64{"active": 0, "paused": 0, "gone": 0, "dead": 0, "probing": 1},
		of(f[prefix+"state"]))
	require.Equal(t, map[string]float64{"probing": 1, "retry_after": 1, "adaptive_heartbeat": 1, "channel_paused": 1},
		of(f[prefix+"held"]))
	require.InDelta(t, 1.0/60, of(f["penstock_adaptive_rate"])["k00001"], 1e-9)
	h := f[prefix+"delivery_seconds"].GetMetric()[0].GetHistogram()
	require.EqualValues(t, 2, h.GetSampleCount())
	require.InDelta(t, 40.003, h.GetSampleSum(), 1e-9)
	for _, b := range h.GetBucket() {
		want := uint64(0)
		if b.GetUpperBound() >= .003 {
			want = 1
		}
		if b.GetUpperBound() > 40 {
			want = 2
		}
		require.Equal(t, want, b.GetCumulativeCount(), b.GetUpperBound())
	}
	require.Zero(t, f[prefix+"series_dropped"].GetMetric()[0].GetGauge().GetValue())
	require.EqualValues(t, 4, f[prefix+"sample_age_seconds"].GetMetric()[0].GetGauge().GetValue())
	require.NotContains(t, f, prefix+"workers")
}

// policyOf is the record of a policy with these fields and values.
func policyOf(t *testing.T, fields ...string) string {
	t.Helper()
	form := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		form[fields[i]] = fields[i+1]
	}
	record, err := policy.NewBook(policy.Policy{}).Merge("", form, time.Now())
	require.NoError(t, err)
	return record
}

func TestAPullConsumerHasItsWorkersAndTheTimeSinceTheirLastContact(t *testing.T) {
	r := newRig(2)
	r.Consumers[0].Type, r.Consumers[1].Type = durable.Pull, durable.Pull
	f := r.scrape(t, "", MostConsumers)
	require.Equal(t, map[string]float64{"k00001": 2, "k00002": 0}, of(f[prefix+"workers"]))
	require.Equal(t, map[string]float64{"k00001": 3}, of(f[prefix+"last_contact_seconds"]), "none is known of the other")
	require.NotContains(t, f, prefix+"delivery_seconds", "nothing is sent to it")
}

// What is not known is left out: it is not 0.
func TestWithoutASampleOrRedisThereAreNoLevels(t *testing.T) {
	r := newRig(2)
	r.sample.Of[1] = sampler.Level{Dead: 4}
	delete(r.sample.Of, 2) // created since
	f := r.scrape(t, "", MostConsumers)
	require.Equal(t, map[string]float64{"k00001": 4}, of(f[prefix+"dead"]))
	require.NotContains(t, f, prefix+"waiting")
	require.NotContains(t, f, prefix+"oldest_waiting_seconds")
	require.Len(t, of(f[prefix+"limited_total"]), 2)
	r.sample = nil
	f = r.scrape(t, "", MostConsumers)
	require.NotContains(t, f, prefix+"dead")
	require.NotContains(t, f, prefix+"sample_age_seconds")
}

// The choice is of those that matter, and the same each time.
func TestConsumersWithTheOldestJobsAreKept(t *testing.T) {
	r := newRig(3, 4)
	r.sample.Of[7] = sampler.Level{Known: true, Waiting: 1, Oldest: r.now.Add(-time.Hour)}
	r.sample.Of[2] = sampler.Level{Known: true, Waiting: 9, Oldest: r.now.Add(-time.Minute)}
	r.sample.Of[6] = sampler.Level{Known: true, Dead: 1}
	for limit, want := range map[int][]string{1: {"k00007"}, 2: {"k00002", "k00007"}, 3: {"k00002", "k00006", "k00007"},
		5: {"k00001", "k00002", "k00003", "k00006", "k00007"}} {
		for range 3 {
			f := r.scrape(t, "", limit)
			require.Equal(t, want, names(f[prefix+"waiting"]), limit)
			require.EqualValues(t, 7-limit, f[prefix+"series_dropped"].GetMetric()[0].GetGauge().GetValue())
		}
	}
	f := r.scrape(t, "c1", MostConsumers)
	require.Equal(t, []string{"k00001", "k00002", "k00003"}, names(f[prefix+"waiting"]))
	require.Zero(t, f[prefix+"series_dropped"].GetMetric()[0].GetGauge().GetValue(), "of the channel")
	_, err := r.door(t).Write("nowhere", 1)
	require.ErrorIs(t, err, catalogue.ErrUnknownChannel)
}

func TestLabelsAreEscaped(t *testing.T) {
	r := newRig(1)
	r.Channels[0].ID, r.Consumers[0].ID = `a"b\c`, "d\ne\"} 1\n"
	m := r.scrape(t, "", 1)[prefix+"waiting"].GetMetric()
	require.Len(t, m, 1)
	require.Equal(t, []string{`a"b\c`, "d\ne\"} 1\n"}, []string{m[0].GetLabel()[0].GetValue(), m[0].GetLabel()[1].GetValue()})
}

// All that the page may have is listed, for the page of documentation and its tests.
func TestTheFamiliesAreThoseOfThePage(t *testing.T) {
	known := map[string]string{}
	for _, f := range Families() {
		require.NotEmpty(t, f.Help)
		known[f.Name] = f.Type
	}
	for name, f := range newRig(2).scrape(t, "", MostConsumers) {
		require.Contains(t, known, name)
		if len(f.GetMetric()) > 0 {
			require.Equal(t, known[name], map[dto.MetricType]string{dto.MetricType_GAUGE: "gauge",
				dto.MetricType_COUNTER: "counter", dto.MetricType_HISTOGRAM: "histogram"}[f.GetType()], name)
		}
	}
}

// A scrape with 10 000 consumers, of which 1 000 are on the page, and one with all of them.
func BenchmarkPageOf10000Consumers(b *testing.B) {
	r := newRig(10_000)
	for no := uint32(1); no <= 10_000; no++ {
		age := time.Duration(no*7919%10_007) * time.Second
		r.sample.Of[no] = sampler.Level{Known: true, Waiting: int(no), Oldest: r.now.Add(-age)}
		r.book.Ended([]durable.Outcome{{ConsumerNo: no, Kind: durable.OutcomeDelivered, DurationMs: int64(no % 5000),
			StatusCode: 200}})
	}
	door := r.door(b)
	for name, limit := range map[string]int{"usual": MostConsumers, "all": 10_000} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				page, err := door.Write("", limit)
				if err != nil {
					b.Fatal(err)
				}
				size = len(page)
			}
			b.ReportMetric(float64(size)/1e6, "MB/page")
		})
	}
}
