// Package metrics has the counters of the data plane, all in one struct: the rooms of
// hotpath share some of them.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// Metrics are the counters of the data plane. All names begin with penstock_.
// None has a label that grows with traffic or with the number of resources, which are for the Book.
type Metrics struct {
	Published         prometheus.Counter
	PublishBytes      prometheus.Counter
	BatchRefused      prometheus.Counter
	Repeats           prometheus.Counter
	JournalLost       prometheus.Counter
	FilterErrors      *prometheus.CounterVec // by reason
	CommitBatch       prometheus.Histogram
	CommitSeconds     prometheus.Histogram
	FannedOut         prometheus.Counter
	FanoutErrors      prometheus.Counter
	FanoutDeferred    prometheus.Counter
	Spilled           prometheus.Counter
	Claimed           prometheus.Counter
	Verified          prometheus.Counter
	Attempts          *prometheus.CounterVec // outcome
	AckSeconds        prometheus.Histogram
	AttemptSeconds    prometheus.Histogram
	EndToEnd          prometheus.Histogram
	Dead              *prometheus.CounterVec // reason; of Died
	Released          prometheus.Counter
	OutcomeBatch      prometheus.Histogram
	AcknowledgeErrors prometheus.Counter
	Transitions       *prometheus.CounterVec // state, code
	PushInFlight      prometheus.Gauge
	answers           [3][3]prometheus.Counter // of publishes; by policy.Ack, then as in Answer
	Book              *Book                    // by consumer and channel; nil: not counted
}

// latencyBuckets resolve 0.5 ms to 30 s.
var latencyBuckets = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New registers the metrics of the data plane.
func New(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_" + name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_" + name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_" + name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	rows := prometheus.ExponentialBuckets(1, 2, 11)
	m := &Metrics{
		Published:         counter("published_messages_total", "Messages stored and acknowledged."),
		PublishBytes:      counter("publish_payload_bytes_total", "Payload bytes of acknowledged messages."),
		BatchRefused:      counter("batch_refused_lines_total", "Lines of batch publishes that were refused."),
		Repeats:           counter("acknowledged_repeats_total", "Messages that were stored already and were answered with success."),
		JournalLost:       counter("journal_lost_messages_total", "Messages of journals that the disk did not return as they were written."),
		FilterErrors:      vector("filter_errors_total", "Filters that failed on a message, which counts as no match, by reason.", "reason"),
		CommitBatch:       histogram("commit_batch_messages", "Messages in one transaction of published messages.", rows),
		CommitSeconds:     histogram("commit_duration_seconds", "Time of one transaction of published messages.", latencyBuckets),
		FannedOut:         counter("fanout_messages_total", "Messages whose jobs were offered to Redis."),
		FanoutErrors:      counter("fanout_errors_total", "Batches of jobs that Redis did not take at once."),
		FanoutDeferred:    counter("fanout_deferred_total", "Messages left to the reconciler because Redis was away too long."),
		Spilled:           counter("queue_spilled_jobs_total", "Jobs that found no room in the window of their consumer and wait in the store."),
		Claimed:           counter("push_claimed_jobs_total", "Jobs claimed for push delivery."),
		Verified:          counter("push_verified_jobs_total", "Claimed jobs that the store was asked about before sending."),
		Attempts:          vector("delivery_attempts_total", "Push attempts by outcome.", "outcome"),
		AckSeconds:        histogram("ack_seconds", "Time from the last byte of a publish, or of some lines of a batch, to a success.", latencyBuckets),
		AttemptSeconds:    histogram("delivery_duration_seconds", "Time of one push attempt.", latencyBuckets),
		EndToEnd:          histogram("end_to_end_seconds", "Time from the message ID to the consumer's success, push, first attempt.", latencyBuckets),
		Dead:              vector("dead_jobs_total", "Jobs that became dead letters, by reason.", "reason"),
		Released:          counter("released_jobs_total", "Claimed jobs given back unsent and uncharged."),
		OutcomeBatch:      histogram("outcome_batch_rows", "Outcomes in one transaction.", rows),
		AcknowledgeErrors: counter("acknowledge_errors_total", "Acks or nacks that Redis did not take; the leases end by themselves."),
		Transitions:       vector("pull_transitions_total", "Job transitions asked for by pull consumers, by state and status code.", "state", "code"),
		PushInFlight:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_push_requests_in_flight", Help: "Push requests under way."}),
	}
	r.MustRegister(m.PushInFlight)
	for _, outcome := range []string{"delivered", "retry", "dead", "gone", "token_refused"} {
		m.Attempts.WithLabelValues(outcome) // present before the first one, which is then an increase
	}
	for _, code := range durable.ReasonCodes() {
		m.Dead.WithLabelValues(code)
	}
	answers := vector("publish_answers_total", "Answers to publishes, in a batch to its lines: 201, 202 from the journal, and 503, by the ack of the channel.", "ack", "status")
	for ack := range m.answers {
		for i, status := range []string{"201", "202", "503"} {
			m.answers[ack][i] = answers.WithLabelValues(policy.Ack(ack).String(), status)
		}
	}
	return m
}

// Answer counts the answer to a publish in a channel: stored, in the journal, or a failure.
func (m *Metrics) Answer(ack policy.Ack, journalled bool, err error) {
	switch {
	case journalled:
		m.answers[ack][1].Inc()
	case err == nil:
		m.answers[ack][0].Inc()
	case problem.From(err).Status == 503:
		m.answers[ack][2].Inc()
	}
}

// Answers returns how many publishes were answered 201, 202 and 503 since this broker began.
func (m *Metrics) Answers() (n [3]uint64) {
	for _, of := range m.answers {
		for i, c := range of {
			var counted dto.Metric
			_ = c.Write(&counted) // a counter of this process
			n[i] += uint64(counted.GetCounter().GetValue())
		}
	}
	return n
}

// Observe adds a value to a histogram. trace is the ID of the trace that it was measured in, which becomes
// an exemplar; "": none.
func Observe(h prometheus.Histogram, value float64, trace string) {
	if trace == "" {
		h.Observe(value)
	} else if with, ok := h.(prometheus.ExemplarObserver); ok {
		with.ObserveWithExemplar(value, prometheus.Labels{"trace_id": trace})
	}
}

// Died counts jobs that became dead letters.
func (m *Metrics) Died(reason durable.Reason, jobs int) {
	m.Dead.WithLabelValues(reason.String()).Add(float64(jobs))
}
