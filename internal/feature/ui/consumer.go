package ui

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A consumerView is what the page of a consumer shows.
type consumerView struct {
	Consumer
	Row     consumerRow
	Own     []setting // fields of the policy that the consumer sets
	Rest    []setting // those of the installation
	Spark   spark
	Past    past
	Facts   []fact
	Now     time.Time
	Reasons []reason
	Acts    []offered
	Said    string // what was done just now
}

// A setting is a field of a policy.
type setting struct{ Name, Value string }

// A fact is something that is known, with when.
type fact struct {
	Name, Text string
	At         time.Time // zero: it has no time
}

// A reason is one of why, as a page shows it.
type reason struct {
	apitype.WhyReason
	Class        string    // of its colour; "": it needs nobody
	Since, Until time.Time // zero: not known
}

func consumerPage(ctx context.Context, v *view) (title string, content any, err error) {
	channel, id := v.id("channel"), v.id("consumer")
	span, err := v.span()
	if err != nil {
		return "", nil, err
	}
	c, err := v.src.Consumer(ctx, channel, id, span)
	if err != nil {
		return "", nil, err
	}
	p := &consumerView{Consumer: c, Row: rowOf(&c.ListedConsumer, v.now), Now: v.now, Reasons: reasonsOf(c.Why)}
	p.Own, p.Rest = settingsOf(&c.Consumer)
	if len(c.History) > 0 {
		p.Spark = sparkOf(span, c.History)
		p.Past = v.pastOf(span, c.History)
	}
	p.Facts = factsOf(&c.ListedConsumer)
	p.Acts, p.Said = v.offersOf(&c.ListedConsumer), v.said()
	return id + ": " + lowered(p.Row.Mark.Word), p, nil
}

// lowered begins a text with a small letter, as a part of a sentence.
func lowered(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// reasonsOf returns the reasons of why with their colours.
func reasonsOf(w apitype.Why) (out []reason) {
	for _, r := range w.Reasons {
		x := reason{WhyReason: r}
		switch r.Code {
		case "store_unavailable", "gone", "tombstoned", "endpoint_failing", "dead", "expired", "adaptive_heartbeat":
			x.Class = "bad"
		case "due", "delivered", "filtered", "not_addressed", "consumer_newer", "scheduled", "delayed":
		default:
			x.Class = "warn"
		}
		if r.Since != nil {
			x.Since = r.Since.Time
		}
		if r.Until != nil {
			x.Until = r.Until.Time
		}
		x.Detail, x.Action, x.By = cut(r.Detail, mostReason), cut(r.Action, mostReason), cut(r.By, mostReason)
		out = append(out, x)
		if len(out) == mostReasons {
			break
		}
	}
	return out
}

const (
	mostReasons = 100  // of one page
	mostReason  = 2048 // bytes of each text of a reason
)

// settingsOf returns the fields of a policy: those of the consumer, and those of the installation.
func settingsOf(c *apitype.Consumer) (own, rest []setting) {
	value := reflect.ValueOf(c.Policy)
	for i := range value.NumField() {
		name := value.Type().Field(i).Name
		s := setting{strings.ToLower(name[:1]) + name[1:], cut(value.Field(i).String(), mostReason)}
		if slices.Contains(c.Inherited, name) {
			rest = append(rest, s)
		} else {
			own = append(own, s)
		}
	}
	return own, rest
}

// factsOf are what is known of a consumer beside its counts.
func factsOf(c *apitype.ListedConsumer) (facts []fact) {
	add := func(name, text string, at *apitype.Time) {
		f := fact{Name: name, Text: text}
		if at != nil {
			f.At = at.Time
		}
		if f.Text != "" || !f.At.IsZero() {
			facts = append(facts, f)
		}
	}
	add("State", strings.ToLower(c.State), &c.StateChangedAt)
	add("Because", cut(c.StateReason, mostReason), nil)
	add("Type", c.Type, nil)
	add("Endpoint", cut(c.CallbackURL, mostReason), nil)
	add("Name", c.Name, nil)
	if c.Rate != "NORMAL" {
		add("Pace", strings.TrimSpace(strings.ToLower(c.Rate)+" "+c.CurrentRate), nil)
	}
	add("Last attempt", "", c.LastAttemptAt)
	add("Last success", "", c.LastSuccessAt)
	if c.LastStatus > 0 {
		add("Last answer", number(c.LastStatus), nil)
	}
	add("Last error", cut(c.LastError, mostReason), nil)
	add("Last claim", "", c.LastClaimAt)
	add("Gets messages since", "", c.Since)
	return facts
}
