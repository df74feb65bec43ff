package publish

import (
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/schedule"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// The headers of a scheduled message. In a batch they are those of each line without its own.
const (
	scheduledHeader  = "X-Broker-Scheduled-For"
	delayHeader      = "X-Broker-Delay"
	recurrenceHeader = "X-Broker-Recurrence"
)

// The names that the refusals of times use.
type timeNames struct{ at, delay, recurrence string }

var (
	errHeaderTimes = timeNames{scheduledHeader, delayHeader, recurrenceHeader}
	errLineTimes   = timeNames{"ScheduledFor", "Delay", "Recurrence"}
)

// times are the times of a message as the producer wrote them. times0 is a message of now, which is
// also that of the delay 0. At most one of ScheduledFor and DelayMs is set.
type times struct {
	ScheduledFor string `json:",omitempty"`
	Recurrence   string `json:",omitempty"`
	DelayMs      int64  `json:",omitempty"`
}

var times0 times

func (d *Draft) timeNames() timeNames {
	if d.request {
		return errHeaderTimes
	}
	return errLineTimes
}

// once reads a header that may occur once, and not empty.
func once(name string, parse func(*Draft, []byte) error) func(*Draft, *fasthttp.RequestHeader) error {
	return func(d *Draft, h *fasthttp.RequestHeader) error {
		text := h.Peek(name)
		switch {
		case text == nil:
			return nil
		case len(h.PeekAll(name)) > 1:
			return problem.New(400, "invalid_schedule", name+" must occur once; nothing was stored.")
		case len(text) == 0:
			return problem.New(400, "invalid_schedule", name+" is empty; nothing was stored.")
		}
		return parse(d, text)
	}
}

func (d *Draft) setScheduledFor(text []byte) error {
	d.ownAt, d.ScheduledFor = true, string(text)
	return nil
}

func (d *Draft) setRecurrence(text []byte) error {
	d.Recurrence = string(text)
	return nil
}

// setDelay sets the delay. An empty one is none, not even that of the request.
func (d *Draft) setDelay(text []byte) error {
	d.ownDelay, d.DelayMs = true, 0
	if len(text) == 0 {
		return nil
	}
	delay, err := schedule.ParseDelay(string(text))
	if err != nil {
		return problem.New(400, "invalid_schedule", d.timeNames().delay+": "+sentence.Of(err)+"; nothing was stored.")
	}
	d.DelayMs = delay.Milliseconds()
	return nil
}

// readDelay reads a string with a delay, or whole seconds as a number.
func (d *Draft) readDelay() error {
	if d.in.At < len(d.in.Text) && d.in.Text[d.in.At] == '"' {
		text, err := d.in.word()
		if err == nil {
			err = d.setDelay(text)
		}
		return err
	}
	digits := d.in.number()
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return errLine
	}
	return d.setDelay(digits)
}

// checkTimes refuses a message with a time and a delay.
func (d *Draft) checkTimes() error {
	if d.ownAt && d.ownDelay {
		names := d.timeNames()
		return problem.Newf(400, "invalid_schedule", "A message has %s or %s, not both; nothing was stored.", names.at,
			names.delay)
	}
	return nil
}

// plannedTimes returns the times of the message. Its own time counts instead of a default delay, and its
// own delay instead of a default time.
func (d *Draft) plannedTimes() (t times, err error) {
	t = d.times
	switch {
	case d.ownAt:
		t.DelayMs = 0
	case d.ownDelay:
		t.ScheduledFor = ""
	}
	return t, d.checkTimes()
}

// A planner makes schedules of messages.
type planner struct {
	least time.Duration // how far ahead a message must be
	nowMs func() int64
}

func newPlanner(o Options) planner {
	s := planner{least: o.MinSchedule, nowMs: o.NowMs}
	if s.nowMs == nil {
		s.nowMs = func() int64 { return time.Now().UnixMilli() }
	}
	return s
}

// plan returns the schedule of a message. A delay, and the fields of a cron table, count from nowMs. The
// schedule is Past where its time is.
func (s *planner) plan(nowMs int64, m durable.Message, t times, names timeNames) (*durable.Scheduled, error) {
	r, err := recurrenceOf(t, names)
	if err != nil {
		return nil, err
	}
	due, past, err := s.due(t, r, names, time.UnixMilli(nowMs).UTC())
	if err != nil {
		return nil, err
	}
	if r != nil && len(m.Key) > schedule.MaxID && !m.Digested() {
		return nil, problem.Newf(400, "invalid_message_id", "The ID of a recurring message has at most %d bytes, because "+
			"each message gets a suffix.", schedule.MaxID)
	}
	if r != nil && m.Key != "" && !m.Digested() && ident.MadeRecurring(m.PublicID()) {
		return nil, errMadeID
	}
	dueMs := due.Add(time.Millisecond - time.Nanosecond).UnixMilli() // never before its time
	fromNow := t.DelayMs > 0 || t.ScheduledFor == "" && r.Cron()
	return &durable.Scheduled{Message: m, DueMs: dueMs, DelayMs: t.DelayMs, Recurrence: t.Recurrence, FromNow: fromNow,
		Past: past}, nil
}

// recurrenceOf returns the recurrence of times, nil for none.
func recurrenceOf(t times, names timeNames) (*schedule.Recurrence, error) {
	if t.Recurrence == "" {
		return nil, nil
	}
	r, err := schedule.Parse(t.Recurrence)
	if err != nil {
		return nil, problem.New(400, "invalid_recurrence", names.recurrence+": "+sentence.Of(err)+"; nothing was stored.")
	}
	if !r.Cron() && (t.ScheduledFor != "" || t.DelayMs > 0) {
		return nil, problem.Newf(400, "invalid_recurrence", "%s has a start of its own, so %s and %s must be absent; "+
			"nothing was stored.", names.recurrence, names.at, names.delay)
	}
	return r, nil
}

// due returns the time of the first message. past reports that it was given as a time and is past: a repeat
// of a request may come then. A delay that is too short always was.
func (s *planner) due(t times, r *schedule.Recurrence, names timeNames, now time.Time) (due time.Time, past bool,
	err error) {
	switch {
	case t.ScheduledFor != "":
		if due, err = apitype.ParseTime(t.ScheduledFor); err != nil {
			return due, false, problem.New(400, "invalid_schedule", names.at+" must be an RFC 3339 time with an offset, "+
				"such as 2026-12-01T09:00:00+01:00; nothing was stored.")
		}
	case t.DelayMs > 0:
		due = now.Add(time.Duration(t.DelayMs) * time.Millisecond)
	case r.Cron():
		return r.First(now.Add(max(s.least, time.Millisecond))), false, nil
	default:
		due = r.First(now)
	}
	past = !due.After(now) || due.Before(now.Add(s.least))
	switch {
	case past && t.ScheduledFor == "" && t.DelayMs > 0:
		return due, false, s.tooSoon()
	case due.After(now.Add(schedule.Horizon)):
		return due, false, problem.New(400, "invalid_schedule", "The time is more than ten years ahead; nothing was stored.")
	case r.Cron():
		due = r.First(due)
	}
	return due, past, nil
}

// tooSoon refuses a schedule that is Past and repeats none.
func (s *planner) tooSoon() error {
	return problem.Newf(412, "schedule_too_soon", "The time is past, or nearer than %v; nothing was stored.", s.least)
}
