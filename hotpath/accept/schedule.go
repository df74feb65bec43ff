package accept

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/cloudevents"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/internal/schedule"
	"github.com/penstock-broker/penstock/internal/sentence"
	"github.com/penstock-broker/penstock/internal/share"
)

// The headers of a scheduled message. In a batch they are those of each line without its own.
const (
	scheduledHeader  = "X-Broker-Scheduled-For"
	delayHeader      = "X-Broker-Delay"
	recurrenceHeader = "X-Broker-Recurrence"
)

// scheduling is the number of concurrent transactions of schedules. Producers get them in turn.
const scheduling = 8

// forwarded is the number of messages that ForwardAll submits together.
const forwarded = 128

// The names that the refusals of times use.
type timeNames struct{ at, delay, recurrence string }

var (
	errHeaderTimes = timeNames{scheduledHeader, delayHeader, recurrenceHeader}
	errLineTimes   = timeNames{"ScheduledFor", "Delay", "Recurrence"}
)

// times are the times of a message as the producer wrote them. times0 is a message of now, which is
// also that of the delay 0. At most one of at and delay is set.
type times struct {
	at, recurrence string
	delay          time.Duration // in milliseconds
}

var times0 times

// timesOf returns the times in the headers of a request.
func timesOf(h *fasthttp.RequestHeader) (t times, err error) {
	at, delay, recurrence := h.Peek(scheduledHeader), h.Peek(delayHeader), h.Peek(recurrenceHeader)
	if at == nil && delay == nil && recurrence == nil {
		return times0, nil
	}
	for _, name := range []string{scheduledHeader, delayHeader, recurrenceHeader} {
		switch all := h.PeekAll(name); {
		case len(all) > 1:
			return times0, problem.New(400, "invalid_schedule", name+" must occur once; nothing was stored.")
		case len(all) == 1 && len(all[0]) == 0:
			return times0, problem.New(400, "invalid_schedule", name+" is empty; nothing was stored.")
		}
	}
	t.at, t.recurrence = string(at), string(recurrence)
	if delay == nil {
		return t, nil
	}
	if at != nil {
		return times0, errHeaderTimes.two()
	}
	t.delay, err = errHeaderTimes.parseDelay(string(delay))
	return t, err
}

// two refuses a message with a time and a delay.
func (n timeNames) two() error {
	return problem.Newf(400, "invalid_schedule", "A message has %s or %s, not both; nothing was stored.", n.at, n.delay)
}

func (n timeNames) parseDelay(text string) (time.Duration, error) {
	d, err := schedule.ParseDelay(text)
	if err != nil {
		err = problem.New(400, "invalid_schedule", n.delay+": "+sentence.Of(err)+"; nothing was stored.")
	}
	return d, err
}

// A scheduler stores messages that are sent later.
type scheduler struct {
	store     Store
	least     time.Duration // how far ahead a message must be
	nowMs     func() int64
	scheduled func(dueMs int64)
	slots     *share.Bound
}

func newScheduler(o Options) scheduler {
	s := scheduler{store: o.Store, least: o.MinSchedule, nowMs: o.NowMs, scheduled: o.Scheduled, slots: share.New(share.Options{Name: "schedules", Most: scheduling})}
	if s.nowMs == nil {
		s.nowMs = func() int64 { return time.Now().UnixMilli() }
	}
	if s.scheduled == nil {
		s.scheduled = func(int64) {}
	}
	return s
}

// plan returns the schedule of a message. A delay, and the fields of a cron table, count from nowMs.
func (s *scheduler) plan(nowMs int64, m durable.Message, t times, names timeNames) (*durable.Scheduled, error) {
	r, err := recurrenceOf(t, names)
	if err != nil {
		return nil, err
	}
	due, err := s.due(t, r, names, time.UnixMilli(nowMs).UTC())
	if err != nil {
		return nil, err
	}
	if r != nil && len(m.Key) > schedule.MaxID && !m.Digested() {
		return nil, problem.Newf(400, "invalid_message_id", "The ID of a recurring message has at most %d bytes, because each message gets a suffix.", schedule.MaxID)
	}
	if r != nil && m.Key != "" && !m.Digested() && ident.MadeRecurring(m.PublicID()) {
		return nil, errMadeID
	}
	dueMs := due.Add(time.Millisecond - time.Nanosecond).UnixMilli() // never before its time
	fromNow := t.delay > 0 || t.at == "" && r.Cron()
	return &durable.Scheduled{Message: m, DueMs: dueMs, DelayMs: t.delay.Milliseconds(), Recurrence: t.recurrence, FromNow: fromNow}, nil
}

// recurrenceOf returns the recurrence of times, nil for none.
func recurrenceOf(t times, names timeNames) (*schedule.Recurrence, error) {
	if t.recurrence == "" {
		return nil, nil
	}
	r, err := schedule.Parse(t.recurrence)
	if err != nil {
		return nil, problem.New(400, "invalid_recurrence", names.recurrence+": "+sentence.Of(err)+"; nothing was stored.")
	}
	if !r.Cron() && (t.at != "" || t.delay > 0) {
		return nil, problem.Newf(400, "invalid_recurrence", "%s has a start of its own, so %s and %s must be absent; nothing was stored.", names.recurrence, names.at, names.delay)
	}
	return r, nil
}

// due returns the time of the first message.
func (s *scheduler) due(t times, r *schedule.Recurrence, names timeNames, now time.Time) (due time.Time, err error) {
	switch {
	case t.at != "":
		if due, err = apitype.ParseTime(t.at); err != nil {
			return due, problem.New(400, "invalid_schedule", names.at+" must be an RFC 3339 time with an offset, such as 2026-12-01T09:00:00+01:00; nothing was stored.")
		}
	case t.delay > 0:
		due = now.Add(t.delay)
	case r.Cron():
		return r.First(now.Add(max(s.least, time.Millisecond))), nil
	default:
		due = r.First(now)
	}
	switch {
	case !due.After(now) || due.Before(now.Add(s.least)):
		return due, problem.Newf(412, "schedule_too_soon", "The time is past, or nearer than %v; nothing was stored.", s.least)
	case due.After(now.Add(schedule.Horizon)):
		return due, problem.New(400, "invalid_schedule", "The time is more than ten years ahead; nothing was stored.")
	case r.Cron():
		due = r.First(due)
	}
	return due, nil
}

// publishLater stores a scheduled message and answers.
func (p *Publisher) publishLater(ctx *fasthttp.RequestCtx, from sender, mode cloudevents.Mode, msg *durable.Message, t times) error {
	later, err := p.scheduler.plan(p.scheduler.nowMs(), *msg, t, errHeaderTimes)
	if err != nil {
		return err
	}
	held, err := p.readPayload(ctx, &from, mode, &later.Message)
	defer p.bytes.Give(from.key(), held)
	if err == nil && later.FromNow { // now is when the message is whole
		later, err = p.scheduler.plan(p.scheduler.nowMs(), later.Message, t, errHeaderTimes)
	}
	if err != nil {
		return err
	}
	later.Replicated = from.ch.Intake.Ack == policy.AckReplicated
	err = p.scheduleAll(context.Background(), Terms{Patience: admissionPatience, Counted: held}, []*durable.Scheduled{later})[0]
	status := fasthttp.StatusCreated
	stored := later.Message
	if errors.Is(err, durable.ErrDuplicate) {
		var replay int
		if stored, replay = replayed(&later.Message, from.ch.Intake, err); replay > 0 {
			ctx.Response.Header.Set(ReplayedHeader, "true")
			p.metrics.Repeats.Inc()
			status, err = replay, nil
		}
	} else if err != nil {
		return err
	}
	ctx.Response.Header.SetBytesV("Location", appendScheduledURL(nil, from.ch.ID, &stored))
	ctx.Response.Header.Set(AckHeader, Committed(from.ch.Intake.Ack).String())
	if err == nil {
		ctx.SetStatusCode(status)
	}
	return err
}

// appendScheduledURL appends the path of a schedule.
func appendScheduledURL(b []byte, channelID string, m *durable.Message) []byte {
	b = append(b, "/channel/"...)
	b = append(b, channelID...)
	b = append(b, "/scheduled-message/"...)
	return m.AppendPathID(b)
}

// laterLines are the scheduled messages of a chunk.
type laterLines struct {
	results []error
	done    chan struct{} // closed with the last result
}

// scheduleLines stores the scheduled messages of lines in the background; nil: there are none.
func (p *Publisher) scheduleLines(ctx context.Context, lines []line) *laterLines {
	var batch []*durable.Scheduled
	for _, l := range lines {
		if l.later != nil {
			batch = append(batch, l.later)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	later := &laterLines{done: make(chan struct{})}
	go func() {
		defer close(later.done)
		err := guard.Do("schedule lines", func() error {
			later.results = p.scheduleAll(ctx, Terms{Patience: batchRoom, Lines: true}, batch)
			return nil
		})
		if err != nil {
			later.results = slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
		}
	}()
	return later
}

// recordLater adds the result of the next scheduled line of a chunk to the answers.
func (c *chunk) recordLater(a *answers, l line) (stored, repeat bool) {
	err := c.later.results[0]
	c.later.results = c.later.results[1:]
	return err == nil, a.add(&l.later.Message, err, c.intake, isScheduled)
}

// scheduleAll stores schedules, inside the bounds of what may wait for the store, and returns one
// result each.
func (p *Publisher) scheduleAll(ctx context.Context, t Terms, batch []*durable.Scheduled) []error {
	k, n, bytes := share.Producer(batch[0].ProducerNo), len(batch), -t.Counted
	for _, m := range batch {
		bytes += int64(m.Bytes())
	}
	var results []error
	err := p.inTurn(ctx, t, k, n, bytes, func(ctx context.Context) { results = p.storeSchedules(ctx, batch) })
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	failpoint.At(failpoint.AfterSchedule)
	for i, err := range results {
		if err == nil {
			p.scheduler.scheduled(batch[i].DueMs)
		}
	}
	return results
}

// inTurn calls store with a place among the transactions of schedules, of n schedules with so many bytes.
func (p *Publisher) inTurn(ctx context.Context, t Terms, k share.Key, n int, bytes int64, store func(context.Context)) error {
	if !p.admit(ctx, t, k, n, bytes) {
		return problem.ErrOverloaded
	}
	defer p.leave(k, n, bytes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), intake.AnswerWithin)
	defer cancel()
	if p.scheduler.slots.Wait(ctx, k, 1) != nil {
		return problem.ErrOverloaded
	}
	defer p.scheduler.slots.Give(k, 1)
	store(ctx)
	return nil
}

// schedule gives each schedule its ID and stores them.
func (c *committer) schedule(ctx context.Context, batch []*durable.Scheduled) []error {
	for _, m := range batch {
		m.ID = c.ids.Next()
	}
	prepare := func(m *durable.Scheduled) error {
		_, err := c.destination(&m.Message, false)
		return err
	}
	return storeAll(ctx, c, batch, prepare, func(lease durable.NodeLease, batch []*durable.Scheduled) []error {
		return c.store.Schedule(ctx, lease, batch)
	})
}

// ForwardAll publishes messages that the broker itself makes, and returns one result each.
func (p *Publisher) ForwardAll(ctx context.Context, msgs []*durable.Message) []error {
	results := make([]error, 0, len(msgs))
	var subs []*Submission
	// In small parts, since a part waits for places that publishes of clients could have.
	for part := range slices.Chunk(msgs, forwarded) {
		subs = append(subs, p.Submit(ctx, Terms{Patience: batchRoom, Lines: true}, part...))
	}
	for _, sub := range subs {
		sub.Wait()
		for i := range sub.writes {
			results = append(results, sub.Outcome(i))
		}
		sub.Release()
	}
	return results
}
