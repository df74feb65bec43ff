package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A list is the reasons of one answer.
type list struct {
	v       *view
	reasons []apitype.WhyReason
}

func (l *list) add(r apitype.WhyReason) {
	if r.ConsumerID == "" && l.v != nil {
		r.ConsumerID = l.v.k.ID
	}
	l.reasons = append(l.reasons, r)
}

func (l *list) has(c Code) bool {
	return slices.ContainsFunc(l.reasons, func(r apitype.WhyReason) bool { return r.Code == string(c) })
}

// sorted returns the reasons by importance. Numbers beyond Counted are approximate where some jobs
// were not counted one by one.
func (l *list) sorted(approximate bool) []apitype.WhyReason {
	out := l.reasons
	if out == nil {
		out = []apitype.WhyReason{}
	}
	slices.SortStableFunc(out, func(a, b apitype.WhyReason) int { return Code(a.Code).rank() - Code(b.Code).rank() })
	for i := range out {
		out[i].Approximate = out[i].Approximate || approximate && out[i].Jobs > 0
	}
	return out
}

// clock writes a time for people: without the date where it is less than half a day off.
func clock(t, now time.Time) string {
	if d := now.Sub(t); d < -12*time.Hour || d > 12*time.Hour {
		return t.UTC().Format(time.RFC3339)
	}
	return t.UTC().Format("15:04:05Z")
}

// jobsAre is "1 job" or "n jobs".
func jobsAre(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// summary says in one sentence what the reasons of a consumer say.
func (v *view) summary(l *list, c *counts) string {
	n := c.waiting()
	reasons := l.sorted(c.approximate)
	if n == 0 {
		text := "The consumer has no open jobs"
		if c.inFlight > 0 {
			text = fmt.Sprintf("No job waits, %s in flight", areIs(c.inFlight))
		}
		switch {
		case len(reasons) > 0:
			text += ": " + v.phrase(&reasons[0])
		case v.k.Held():
			text += "; it is " + strings.ToLower(string(v.heldCode()))
		}
		return text + "."
	}
	text := jobsAre(n)
	if c.approximate {
		text = fmt.Sprintf("%d or more jobs", n)
	}
	if n == 1 {
		text += " waits"
	} else {
		text += " wait"
	}
	if len(reasons) == 0 {
		return text + "."
	}
	text += ": " + v.phrase(&reasons[0])
	for i := 1; i < min(len(reasons), 3); i++ {
		text += "; " + v.phrase(&reasons[i])
	}
	return text + v.objective(c) + "."
}

// objective says, after the reasons, that the consumer misses its objective; "": it has none, or keeps it.
func (v *view) objective(c *counts) string {
	if v.p.MaxAge == 0 || c.first.IsZero() || v.now.Sub(c.first) <= v.p.MaxAge {
		return ""
	}
	return fmt.Sprintf("; the oldest job is %s old, and the objective is %s",
		policy.Short(v.now.Sub(c.first).Truncate(time.Second)), policy.Short(v.p.MaxAge))
}

func (v *view) heldCode() Code {
	code, _, _, _ := v.e.holding(v.k, v.has.Hold, v.now)
	return code
}

func areIs(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// phrases say the codes in a sentence. SINCE, UNTIL and BY stand for those of the reason, with the
// words around them, where they are known.
var phrases = map[Code]string{
	StoreUnavailable:   "the store does not answer",
	Gone:               "the consumer answered 410[ at SINCE]",
	Tombstoned:         "the consumer is dead, because too many attempts failed[, since SINCE]",
	Paused:             "the consumer is paused[ since SINCE]",
	Probing:            "the consumer was revived[ at SINCE], and one probe decides",
	RetryAfter:         "the consumer asked for no jobs[ until UNTIL]",
	QueueRestoring:     "the queue is being restored from the store",
	NoWorker:           "no worker has claimed[ since SINCE]",
	AdaptiveHeartbeat:  "the consumer gets one attempt a minute, because attempts fail",
	AdaptiveSlow:       "the consumer gets one attempt a second, because attempts fail",
	RateLimited:        "the rate of the consumer is used up[ until UNTIL]",
	ConcurrencyFull:    "as many attempts are in flight as the policy allows",
	OrderingKeyBlocked: "an earlier job of the ordering key is not over[: BY]",
	Backoff:            "the next attempt is[ at UNTIL]",
	EndpointFailing:    "the last attempt failed",
	EndpointSlow:       "all slots are in flight[, the oldest since SINCE]",
	BrokerSaturated:    "the broker has no free slots",
	BehindPriority:     "jobs with a higher priority come first",
	WorkersBusy:        "the workers are busy",
	Scheduled:          "it is scheduled[ for UNTIL]",
	Delayed:            "a worker gave it back[ until UNTIL]",
	AcceptedOnly:       "it is in the journal of a broker, and not yet in the store",
	Due:                "nothing is in the way[, due since SINCE]",
	ChannelPaused:      "the channel accepts no messages",
	GroupPaused:        "the group of the channel accepts no messages",
	Dead:               "it is a dead letter[ since SINCE]",
	Expired:            "it became older than its time to live[ at SINCE]",
	Filtered:           "the filter of the consumer left the message out",
	NotAddressed:       "the message is addressed to other consumers",
	ConsumerNewer:      "the message is older than the consumer",
	Delivered:          "it was delivered[ at SINCE]",
}

// phrase says a reason in a sentence, without what a producer must not see.
func (v *view) phrase(r *apitype.WhyReason) string {
	text := phrases[Code(r.Code)]
	begin, rest, optional := strings.Cut(text, "[")
	if !optional {
		return text
	}
	part, end, _ := strings.Cut(rest, "]")
	switch {
	case strings.Contains(part, "SINCE") && r.Since != nil:
		part = strings.Replace(part, "SINCE", clock(r.Since.Time, v.now), 1)
	case strings.Contains(part, "UNTIL") && r.Until != nil:
		part = strings.Replace(part, "UNTIL", clock(r.Until.Time, v.now), 1)
	case strings.Contains(part, "BY") && r.By != "":
		part = strings.Replace(part, "BY", r.By, 1)
	default:
		part = ""
		if Code(r.Code) == Backoff {
			begin = "the next attempt comes later"
		}
	}
	return begin + part + end
}
