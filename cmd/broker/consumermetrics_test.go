package main

import (
	"fmt"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// scrape reads a page of metrics as Prometheus does.
func (p *process) scrape(page string) map[string]*dto.MetricFamily {
	p.t.Helper()
	r := p.do("GET", page, "", "X-Broker-Admin-Token", adminToken)
	require.Equal(p.t, 200, r.status, r.body)
	require.True(p.t, strings.HasPrefix(r.header.Get("Content-Type"), "text/plain; version=0.0.4"), r.header)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.body))
	require.NoError(p.t, err)
	return families
}

// of is the value of a metric of a consumer of the stage; more is its last label, if it has one more.
func (s *stage) of(metric, consumer, more string) float64 {
	v, _ := s.metricOf("/metrics/consumers?channel="+s.channel,
		fmt.Sprintf("penstock_consumer_%s{channel=%q,consumer=%q%s}", metric, s.channel, consumer, more))
	return v
}

// awaitMetric waits until a metric of a consumer has a value.
func (s *stage) awaitMetric(metric, consumer, more string, want float64) {
	s.t.Helper()
	var got float64
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s of %s%s: %v", metric, consumer, more, got)
		}
	}()
	eventually(s.t, metric, func() bool { got = s.of(metric, consumer, more); return got == want })
}

// Each consumer has its levels, states and counters on a page of their own.
func TestMetricsOfEachConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_MAX_RETRIES=1", "BROKER_RETRY_BACKOFF=20ms")
		for name, story := range map[string]func(*testing.T, *process){
			"a push consumer":              metricsOfPush,
			"a pull consumer":              metricsOfPull,
			"states and holds":             metricsOfStates,
			"a rate":                       metricsOfARate,
			"what is left out, and denied": metricsLeftOut,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func metricsOfPush(t *testing.T, p *process) {
	good := newSwitchSink(t)
	good.works.Store(true)
	s := p.stage(t, "good="+good.URL, "bad="+newSwitchSink(t).URL)
	for range 3 {
		s.publish("m")
	}
	s.awaitMetric("attempts_total", "good", `,outcome="delivered"`, 3)
	s.awaitMetric("attempts_total", "bad", `,outcome="failed"`, 3)
	s.awaitMetric("attempts_total", "bad", `,outcome="dead"`, 3)
	s.awaitMetric("delivery_seconds_count", "good", "", 3)
	s.awaitMetric("delivery_seconds_bucket", "bad", `,le="+Inf"`, 6)
	s.awaitMetric("dead", "bad", "", 3) // of the next sample
	require.Zero(t, s.of("waiting", "good", ""))
	require.Zero(t, s.of("oldest_waiting_seconds", "good", ""))
	require.EqualValues(t, 1, s.of("state", "good", `,state="active"`))
}

func metricsOfPull(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for range 5 {
		s.publish("m")
	}
	var jobs []string
	claim := func(n int) {
		eventually(t, "jobs", func() bool {
			r := s.do("POST", s.path("/consumer/k/claim?timeout=300&limit=", fmt.Sprint(n-len(jobs))), "", asWorker("k", "w")...)
			require.Equal(t, 200, r.status, r.body)
			for _, j := range r.json(t)["Result"].([]any) {
				j := j.(map[string]any)
				jobs = append(jobs, fmt.Sprintf(`{"ID":%q,"Lease":%q,`, j["ID"], j["Lease"]))
			}
			return len(jobs) == n
		})
	}
	claim(3)
	r := s.do("POST", s.path("/consumer/k/jobs"), `{"Updates":[`+jobs[0]+`"NextState":"DELIVERED"},`+
		jobs[1]+`"NextState":"QUEUED","Delay":3600}]}`, asWorker("k", "w")...)
	require.Equal(t, 200, r.status, r.body)
	s.awaitMetric("attempts_total", "k", `,outcome="delivered"`, 1)
	s.awaitMetric("attempts_total", "k", `,outcome="given_back"`, 1)
	s.awaitMetric("delayed", "k", "", 1)
	s.awaitMetric("in_flight", "k", "", 1)
	s.awaitMetric("waiting", "k", "", 3) // with the delayed one
	require.Positive(t, s.of("oldest_waiting_seconds", "k", ""))
	require.EqualValues(t, 1, s.of("workers", "k", ""))
	require.Less(t, s.of("last_contact_seconds", "k", ""), 60.0)
	r = s.do("POST", s.path("/consumer/k/claim?timeout=1&limit=1"), "", consumerTokens("k")...) // and not a word
	require.Equal(t, 200, r.status, r.body)
	s.awaitMetric("leases_lost_total", "k", "", 1)
	s.awaitMetric("attempts_total", "k", `,outcome="lost"`, 1)
}

func metricsOfStates(t *testing.T, p *process) {
	s := p.stage(t, "k="+answering(t, 503, "Retry-After", "3600"), "other")
	s.publish("m")
	s.awaitMetric("held", "k", `,reason="retry_after"`, 1)
	require.Greater(t, s.of("held_seconds", "k", ""), 3000.0)
	require.Equal(t, 200, s.do("POST", s.path("/consumer/other/pause"), "", consumerTokens("other")...).status)
	s.awaitMetric("state", "other", `,state="paused"`, 1)
	require.Zero(t, s.of("state", "other", `,state="active"`))
	require.EqualValues(t, 1, s.of("held", "other", `,reason="paused"`))
	page := s.do("GET", "/metrics/consumers?channel="+s.channel, "", "X-Broker-Admin-Token", adminToken).body
	require.Equal(t, 10, strings.Count(page, "\npenstock_consumer_state{"))
	require.NotContains(t, s.do("GET", "/metrics", "").body, s.channel, "the other page has no consumer")
}

func metricsOfARate(t *testing.T, p *process) {
	s := p.stage(t, "k="+answering(t, 200), "pull")
	s.put(s.path("/consumer/k"), "rateLimit", "1/1h")
	s.put(s.path("/consumer/pull"), "rateLimit", "1/1h")
	for range 3 {
		s.publish("m")
	}
	eventually(t, "a claim beyond the rate", func() bool { return s.of("limited_total", "k", "") > 0 })
	eventually(t, "a claim of a worker beyond the rate", func() bool {
		require.Equal(t, 200, s.do("POST", s.path("/consumer/pull/claim?limit=2"), "", consumerTokens("pull")...).status)
		return s.of("limited_total", "pull", "") > 0
	})
}

func metricsLeftOut(t *testing.T, p *process) {
	s := p.stage(t, "a", "b", "c")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	at := "/metrics/consumers?channel=" + s.channel
	require.Len(t, s.scrape(at)["penstock_consumer_state"].GetMetric(), 15)
	one := s.scrape(at + "&limit=1")
	require.Len(t, one["penstock_consumer_state"].GetMetric(), 5)
	require.EqualValues(t, 2, one["penstock_consumer_series_dropped"].GetMetric()[0].GetGauge().GetValue())
	require.Len(t, s.scrape(at + "&limit=5000")["penstock_consumer_state"].GetMetric(), 15)
	requireProblem(t, s.do("GET", "/metrics/consumers?chanel=x", "", admin...), 400, "unknown_parameter")
	requireProblem(t, s.do("GET", "/metrics/consumers?limit=0", "", admin...), 400, "invalid_size")
	requireProblem(t, s.do("GET", at+"&channel=x", "", admin...), 400, "invalid_query")
	require.Equal(t, 404, s.do("GET", "/metrics/consumers?channel=nowhere", "", admin...).status)
	require.Equal(t, s.do("GET", "/metrics", "").status, s.do("GET", "/metrics/consumers", "").status, "the same access")
}

// series are the names and labels of a page, and counters its counters.
func series(of map[string]*dto.MetricFamily) (all map[string]bool, counters map[string]float64) {
	all, counters = map[string]bool{}, map[string]float64{}
	for name, f := range of {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		for _, m := range f.GetMetric() {
			line := fmt.Sprint(name, " ", labelsOf(m))
			if all[line] = true; f.GetType() == dto.MetricType_COUNTER {
				counters[line] = m.GetCounter().GetValue()
			}
		}
	}
	return all, counters
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// What exists, and what was deleted, changes neither the size of the page nor a counter.
func TestMetricsHaveAConstantSizeAndCountersNeverFall(t *testing.T) {
	parallel(t)
	sink := newSwitchSink(t)
	sink.works.Store(true)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true", "BROKER_RATIONAL_DELAY=500ms")
	p.stage(t) // the next one finds its producer
	var all []*stage
	delivered := 0
	grow := func(consumers int) (map[string]bool, map[string]float64) {
		s := p.stage(t)
		all = append(all, s)
		for i := range consumers {
			s.join(fmt.Sprintf("k%d=%s", i, sink.URL))
		}
		s.publish("m")
		delivered += consumers
		eventually(t, "deliveries", func() bool { return sink.jobsOf("") == delivered })
		s.join("extra")
		require.Equal(t, 204, s.do("DELETE", s.path("/consumer/extra"), "").status)
		p.scrape("/metrics/consumers")
		p.scrape("/metrics")
		return series(p.scrape("/metrics"))
	}
	few, before := grow(3)
	many, between := grow(300)
	require.Equal(t, few, many, "300 consumers more")
	for i, s := range all {
		for k := range []int{3, 300}[i] {
			require.Equal(t, 204, s.do("DELETE", s.path("/consumer/k", fmt.Sprint(k)), "").status)
		}
	}
	none, after := series(p.scrape("/metrics"))
	require.Equal(t, few, none, "none at all")
	for name, v := range before {
		require.GreaterOrEqual(t, between[name], v, name)
		require.GreaterOrEqual(t, after[name], between[name], name)
	}
	require.Positive(t, after["penstock_published_messages_total map[]"])
}
