package consumermetrics

import (
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
)

// A Family is one metric of the page.
type Family struct {
	Name, Type, Help string
	each             func(p *page, s *series)
}

// prefix is that of most names.
const prefix = "penstock_consumer_"

// families are the metrics of the page, in its order.
var families = []Family{
	{prefix + "oldest_waiting_seconds", "gauge", "Age of the oldest waiting job at the last sample; 0: none waits.",
		level(func(s *series) float64 {
			if s.level.Oldest.IsZero() {
				return 0
			}
			return max(s.at.Sub(s.level.Oldest).Seconds(), 0)
		})},
	{prefix + "max_age_seconds", "gauge", "Objective for the age of the oldest waiting job, maxAge; absent: none is set.",
		func(p *page, s *series) {
			if s.policy.MaxAge > 0 {
				p.value(s, "", "", s.policy.MaxAge.Seconds())
			}
		}},
	{prefix + "waiting", "gauge", "Jobs that wait, with the delayed ones.",
		level(func(s *series) float64 { return float64(s.level.Waiting) })},
	{prefix + "delayed", "gauge", "Waiting jobs that are not due yet.",
		level(func(s *series) float64 { return float64(s.level.Delayed) })},
	{prefix + "in_flight", "gauge", "Jobs with a lease.",
		level(func(s *series) float64 { return float64(s.level.InFlight) })},
	{prefix + "dead", "gauge", "Dead letters.", func(p *page, s *series) {
		if s.sampled {
			p.value(s, "", "", float64(s.level.Dead))
		}
	}},
	{prefix + "accepted_total", "counter", "Jobs of messages that this broker stored.",
		func(p *page, s *series) { p.count(s, "", "", s.counts.Accepted) }},
	{prefix + "attempts_total", "counter", "Attempts that ended at this broker, by outcome.", attempts},
	{prefix + "delivery_seconds", "histogram", "Time of one push attempt of this broker.", delivery},
	{prefix + "state", "gauge", "1 for the state of the consumer, 0 for the others.", state},
	{prefix + "held", "gauge", "1 for each reason that holds the consumer, a code of why; absent: none does.", held},
	{prefix + "held_seconds", "gauge", "Time until the end of the hold of a consumer that asked for it; absent: none.",
		func(p *page, s *series) {
			if s.hold != nil {
				p.value(s, "", "", max(float64(s.hold.UntilMs-p.nowMs)/1000, 0))
			}
		}},
	{prefix + "limited_total", "counter", "Claims at this broker that found the rate of the consumer used up.",
		func(p *page, s *series) { p.count(s, "", "", s.counts.Limited) }},
	{prefix + "leases_lost_total", "counter", "Leases that ended without a word, as this broker noticed.",
		func(p *page, s *series) { p.count(s, "", "", s.counts.LeasesLost) }},
	{prefix + "workers", "gauge", "Living workers of a pull consumer that said their name at this broker.",
		func(p *page, s *series) {
			if s.k.Type == durable.Pull {
				p.value(s, "", "", float64(len(s.presence.Workers)))
			}
		}},
	{prefix + "last_contact_seconds", "gauge", "Time since a worker's last claim, list, move or renewal of a lease at " +
		"this broker; absent: none is known.", contact},
	{"penstock_adaptive_rate", "gauge", "Attempts per second that an adaptive consumer gets while it is slowed down.",
		func(p *page, s *series) {
			if s.pace.N > 0 {
				p.value(s, "", "", float64(s.pace.N)/s.pace.Per.Seconds())
			}
		}},
}

// The metrics of the page itself.
var (
	dropped = Family{Name: prefix + "series_dropped", Type: "gauge", Help: "Consumers that are left out of this page: " +
		"name a channel, or a higher limit."}
	sampleAge = Family{Name: prefix + "sample_age_seconds", Type: "gauge",
		Help: "Age of the sample that waiting, delayed, in flight, dead and oldest are of; absent: there is none yet."}
)

// Families returns what the page may have.
func Families() []Family { return append(families[:len(families):len(families)], dropped, sampleAge) }

// level is a family of what Redis knows.
func level(of func(s *series) float64) func(p *page, s *series) {
	return func(p *page, s *series) {
		if s.sampled && s.level.Known {
			p.value(s, "", "", of(s))
		}
	}
}

func attempts(p *page, s *series) {
	c := &s.counts
	p.count(s, "outcome", "delivered", c.Delivered)
	p.count(s, "outcome", "failed", c.Failed)
	p.count(s, "outcome", "dead", c.Dead)
	p.count(s, "outcome", "lost", c.Lost)
	p.count(s, "outcome", "given_back", c.GivenBack)
}

// states are the values of the label state.
var states = []struct {
	name string
	of   durable.ConsumerState
}{{"active", durable.StateActive}, {"paused", durable.StatePaused}, {"gone", durable.StateGone},
	{"dead", durable.StateDead}, {"probing", durable.StateProbing}}

func state(p *page, s *series) {
	for _, one := range states {
		v := uint64(0)
		if s.k.State == one.of {
			v = 1
		}
		p.count(s, "state", one.name, v)
	}
}

// held has the reasons for which GET /consumers lists the consumer with that value of its parameter held.
func held(p *page, s *series) {
	codes := why.Holding(s.k.State, s.hold != nil)
	switch s.mode {
	case durable.PaceSlow:
		codes = append(codes, why.AdaptiveSlow)
	case durable.PaceHeartbeat:
		codes = append(codes, why.AdaptiveHeartbeat)
	}
	if s.ch.Paused {
		codes = append(codes, why.ChannelPaused)
	}
	if s.ch.GroupPaused {
		codes = append(codes, why.GroupPaused)
	}
	for _, code := range codes {
		p.count(s, "reason", string(code), 1)
	}
}

func contact(p *page, s *series) {
	if s.k.Type != durable.Pull {
		return
	}
	var last time.Time
	for _, at := range []time.Time{s.presence.Claimed, s.presence.Listed, s.presence.Moved, s.presence.Renewed} {
		if at.After(last) {
			last = at
		}
	}
	if !last.IsZero() {
		p.value(s, "", "", max(float64(p.nowMs-last.UnixMilli())/1000, 0))
	}
}
