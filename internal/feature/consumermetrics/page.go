package consumermetrics

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// MostConsumers is the number of consumers on a page, unless fewer are asked for.
const MostConsumers = 1000

// ContentType is that of the page.
const ContentType = apitype.MediaMetrics + "; version=0.0.4; charset=utf-8"

// Options assemble a Door. Each is asked in memory.
type Options struct {
	Catalogue *catalogue.Catalogue
	Book      *metrics.Book
	Latest    func() *sampler.Sample // nil: none was taken
	Holds     interface {
		Known() map[uint32]durable.Hold
	}
	Presence interface {
		Local(consumer uint32) presence.Presence
	}
	Rates interface {
		Mode(consumer uint32) durable.PaceMode
		Pace(consumer uint32) redisq.Rate
	}
	Policies *policy.Book
	NowMs    func() int64 // the store's clock
}

// A Door writes the metrics of consumers. It is safe for concurrent use.
type Door struct{ o Options }

// New returns a door.
func New(o Options) *Door { return &Door{o} }

// A series is what the page says of one consumer.
type series struct {
	ch     *catalogue.Channel
	k      *durable.Consumer
	labels string // channel and consumer, without the braces

	at       time.Time // of the sample
	level    sampler.Level
	sampled  bool // the sample has the consumer
	counts   metrics.ConsumerCounts
	hold     *durable.Hold
	presence presence.Presence // of a pull consumer
	policy   *policy.Policy
	mode     durable.PaceMode // of an adaptive one
	pace     redisq.Rate
}

// A page is written to the end of b.
type page struct {
	b     []byte
	name  string // of the family
	nowMs int64
}

// Write returns the metrics of up to limit consumers, of a channel or ("") of all. A channel that does not
// exist is catalogue.ErrUnknownChannel.
func (d *Door) Write(channel string, limit int) ([]byte, error) {
	all, err := d.consumers(channel)
	if err != nil {
		return nil, err
	}
	sample := d.o.Latest()
	if sample != nil {
		for i := range all {
			all[i].at = sample.At
			all[i].level, all[i].sampled = sample.Of[all[i].k.No]
		}
	}
	kept := choose(all, limit)
	p := page{nowMs: d.o.NowMs(), b: make([]byte, 0, len(kept)*bytesOfOne+1<<10)}
	d.describe(kept)
	for i := range families {
		p.family(&families[i])
		for j := range kept {
			families[i].each(&p, &kept[j])
		}
	}
	p.family(&dropped)
	p.lone(float64(len(all) - len(kept)))
	if sample != nil {
		p.family(&sampleAge)
		p.lone(max(float64(p.nowMs-sample.At.UnixMilli())/1000, 0))
	}
	return p.b, nil
}

// bytesOfOne is about what the page has of one push consumer with IDs of usual length.
const bytesOfOne = 4 << 10

// consumers returns the consumers by the IDs of channel and consumer.
func (d *Door) consumers(channel string) (all []series, err error) {
	channels := d.o.Catalogue.Channels("", math.MaxInt32)
	if channel != "" {
		ch := d.o.Catalogue.Channel(channel)
		if ch == nil {
			return nil, catalogue.ErrUnknownChannel
		}
		channels = []*catalogue.Channel{ch}
	}
	n := 0
	for _, ch := range channels {
		n += len(ch.Consumers)
	}
	all = make([]series, 0, n)
	for _, ch := range channels {
		for _, k := range d.o.Catalogue.Consumers(ch.ID, "", math.MaxInt32) {
			all = append(all, series{ch: ch, k: k})
		}
	}
	return all, nil
}

// choose returns the consumers that the page has, in their order.
func choose(all []series, limit int) []series {
	if len(all) <= limit {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	age := func(l *sampler.Level) int64 {
		if l.Oldest.IsZero() {
			return math.MaxInt64
		}
		return l.Oldest.UnixMilli()
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &all[i].level, &all[j].level
		return cmp.Or(cmp.Compare(age(a), age(b)), cmp.Compare(min(b.Dead, 1), min(a.Dead, 1)), cmp.Compare(i, j))
	})
	order = order[:limit]
	slices.Sort(order)
	kept := make([]series, limit)
	for i, at := range order {
		kept[i] = all[at]
	}
	return kept
}

// describe adds what is known of each consumer besides its level.
func (d *Door) describe(kept []series) {
	holds := d.o.Holds.Known()
	for i := range kept {
		s := &kept[i]
		s.labels = `channel="` + escape(s.ch.ID) + `",consumer="` + escape(s.k.ID) + `"`
		if s.ch.Group != "" {
			s.labels += `,group="` + escape(s.ch.Group) + `"`
		}
		s.counts = d.o.Book.Consumer(s.k.No)
		if h, ok := holds[s.k.No]; ok {
			s.hold = &h
		}
		if s.k.Type == durable.Pull {
			s.presence = d.o.Presence.Local(s.k.No)
		}
		if s.policy = d.o.Policies.Of(s.k.Policy); s.policy.Adaptive && s.k.Type == durable.Push {
			s.mode, s.pace = d.o.Rates.Mode(s.k.No), d.o.Rates.Pace(s.k.No)
		}
	}
}

// escaper writes a value of a label.
var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func escape(value string) string { return escaper.Replace(value) }

// family begins a metric.
func (p *page) family(f *Family) {
	p.name = f.Name
	p.text("# HELP ", f.Name, " ", f.Help, "\n# TYPE ", f.Name, " ", f.Type, "\n")
}

func (p *page) text(parts ...string) {
	for _, part := range parts {
		p.b = append(p.b, part...)
	}
}

// head begins a line of a consumer, with one label more where label has a name.
func (p *page) head(s *series, suffix, label, value string) {
	p.b = append(p.b, p.name...)
	p.b = append(p.b, suffix...)
	p.b = append(p.b, '{')
	p.b = append(p.b, s.labels...)
	if label != "" {
		p.text(",", label, `="`, value, `"`)
	}
	p.b = append(p.b, "} "...)
}

// value writes a line of a consumer.
func (p *page) value(s *series, label, value string, v float64) {
	p.head(s, "", label, value)
	p.number(v)
}

// count writes a line of a consumer.
func (p *page) count(s *series, label, value string, n uint64) {
	p.head(s, "", label, value)
	p.whole(n)
}

// lone writes a line without labels.
func (p *page) lone(v float64) {
	p.text(p.name, " ")
	p.number(v)
}

func (p *page) number(v float64) {
	p.b = strconv.AppendFloat(p.b, v, 'g', -1, 64)
	p.b = append(p.b, '\n')
}

func (p *page) whole(n uint64) {
	p.b = strconv.AppendUint(p.b, n, 10)
	p.b = append(p.b, '\n')
}

// Every other bucket of the book is on the page: 1 ms times a power of 2, up to 32.8 s.
const firstBucket, bucketStep = 2, 2

// bucketNames are the bounds on the page, in seconds.
var bucketNames = func() (names []string) {
	for i := firstBucket; i < metrics.Buckets-1; i += bucketStep {
		names = append(names, strconv.FormatFloat(metrics.HistogramBound(i).Seconds(), 'g', -1, 64))
	}
	return names
}()

func delivery(p *page, s *series) {
	h := &s.counts.Delivery
	if s.k.Type != durable.Push && h.Sum == 0 {
		return
	}
	sum, next := uint64(0), 0
	for i, name := range bucketNames {
		for ; next <= firstBucket+i*bucketStep; next++ {
			sum += h.Counts[next]
		}
		p.head(s, "_bucket", "le", name)
		p.whole(sum)
	}
	for ; next < metrics.Buckets; next++ {
		sum += h.Counts[next]
	}
	p.head(s, "_bucket", "le", "+Inf")
	p.whole(sum)
	p.head(s, "_sum", "", "")
	p.number(h.Sum.Seconds())
	p.head(s, "_count", "", "")
	p.whole(sum)
}
