package api

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// mostCounted bounds each count of messages; tests lower it.
var mostCounted = 1_000_000

var (
	errUnknownScheduled = problem.New(fasthttp.StatusNotFound, "scheduled_message_not_found",
		"The channel has no such scheduled message.")
	errDispatched = problem.New(fasthttp.StatusConflict, "already_dispatched",
		"The scheduled message is due or sent, so it is not deleted.")
	errStatus = problem.New(fasthttp.StatusBadRequest, "invalid_status",
		"The parameter status must be 101 or SCHEDULED, or 102 or DISPATCHED.")
)

func scheduledPath(channelID, id string) string {
	return channelPath(channelID) + "/scheduled-message/" + id
}

// scheduledFor returns the scheduled message that an ID names. A producer sees its own only.
func (a *API) scheduledFor(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel,
	id string) (*durable.Scheduled, error) {
	m, err := a.findScheduled(ctx, ch, id, a.namer(rc))
	if err != nil {
		return nil, err
	}
	if p := publisher(rc); p != nil && m.ProducerNo != p.No {
		return nil, errUnknownScheduled
	}
	if p := a.o.Catalogue.ProducerByNo(m.ProducerNo); m.Status == durable.ScheduleWaiting && p != nil && p.Deleted {
		return nil, errUnknownScheduled // it has ended, and is removed soon
	}
	return m, nil
}

// findScheduled finds a schedule as locate finds a message.
func (a *API) findScheduled(ctx context.Context, ch *catalogue.Channel, id string,
	producer *durable.Producer) (*durable.Scheduled, error) {
	if internal, err := ident.Parse(id); err == nil {
		m, err := a.o.Store.ScheduledByID(ctx, internal)
		if err == nil && m.ChannelNo == ch.No || err != nil && !errors.Is(err, durable.ErrNotFound) {
			return m, err
		}
	}
	for _, key := range keysOf(ch, id, producer) {
		if m, err := a.o.Store.ScheduledByKey(ctx, ch.No, key); err == nil || !errors.Is(err, durable.ErrNotFound) {
			return m, err
		}
	}
	return nil, errUnknownScheduled
}

func (a *API) getScheduled(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.scheduledFor(ctx, rc, ch, param(rc, "scheduled"))
	if err != nil {
		return err
	}
	return a.answerScheduled(rc, m)
}

// A scheduledView is a scheduled message as GET shows it.
type scheduledView struct {
	apitype.ScheduledMessage
	bytes []byte // of the payload
}

func (v *scheduledView) payload() payload {
	return payload{&v.Payload, v.bytes, v.PayloadEncoding != ""}
}

func (a *API) scheduledView(m *durable.Scheduled) *scheduledView {
	view := &scheduledView{viewScheduled(m), m.Payload}
	if p := a.o.Catalogue.ProducerByNo(m.ProducerNo); p != nil {
		view.ProducedBy = p.ID
	}
	if m.Status == durable.ScheduleWaiting && m.Recurrence != "" && a.o.Full != nil && a.o.Full(m.ProducerNo, m.Kept()) {
		view.Reason = quota.ErrFull.Code + ": " + quota.ErrFull.Detail
	}
	if ch := a.o.Catalogue.ChannelByNo(m.ChannelNo); ch != nil && m.MessageID != (ident.ID{}) {
		view.MessageURL = messagePath(ch.ID, m.MessageID.String())
	}
	return view
}

// answerScheduled answers with a scheduled message.
func (a *API) answerScheduled(rc *fasthttp.RequestCtx, m *durable.Scheduled) error {
	held, err := answer.Open(a.o.Answers, answer.KeyOf(rc), len(m.Payload))
	if err != nil {
		return err
	}
	defer held.Drop()
	view := a.scheduledView(m)
	return answerApart(rc, held, &view.ScheduledMessage, m.ChangedAt(), false, view.payload())
}

// viewScheduled returns m without its payload.
func viewScheduled(m *durable.Scheduled) apitype.ScheduledMessage {
	view := apitype.ScheduledMessage{
		ID: m.ID.String(), MessageID: m.PublicID(), ContentType: jsontext.HeaderText(m.ContentType),
		ContentEncoding: jsontext.HeaderText(m.ContentEncoding()), Priority: m.Priority,
		DispatchSchedule: apitype.Time{Time: time.UnixMilli(m.DueMs)}, Status: apitype.Scheduled, Recurrence: m.Recurrence,
		Headers: headersOf(m.Headers),
	}
	if !utf8.Valid(m.Payload) {
		view.PayloadEncoding = apitype.Base64
	}
	if m.Status == durable.ScheduleOver {
		view.Status = apitype.Dispatched
	}
	if m.Recurrence != "" {
		view.Occurrence = m.No + 1
	}
	if m.MessageID != (ident.ID{}) {
		view.DispatchedAt = &apitype.Time{Time: m.MessageID.Time()}
	}
	return view
}

// cancelScheduled deletes a scheduled message before its time, and the rest of a recurrence.
func (a *API) cancelScheduled(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.scheduledFor(ctx, rc, ch, param(rc, "scheduled"))
	if err != nil {
		return err
	}
	switch err := a.o.Store.CancelScheduled(ctx, m.ID); {
	case errors.Is(err, durable.ErrDispatched):
		return errDispatched
	case errors.Is(err, durable.ErrNotFound):
		return errUnknownScheduled
	case err != nil:
		return err
	}
	rc.SetStatusCode(fasthttp.StatusNoContent)
	return nil
}

func (a *API) listScheduled(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	statuses, err := readStatuses(rc, q.keep)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	var from *durable.Scheduled
	if q.First != "" {
		if from = schedulePlace(q.Place); from == nil {
			from, err = a.scheduledFor(ctx, rc, ch, q.First)
		}
		if errors.Is(err, errUnknownScheduled) {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first",
				"The parameter first names no scheduled message of the channel.")
		} else if err != nil {
			return err
		}
	}
	found, err := a.o.Store.Schedules(ctx, ch.No, statuses, from, q.Size+1)
	if err != nil {
		return err
	}
	view := apitype.ScheduledList{Result: make([]string, 0, len(found))}
	at := ch.ChangedAt
	for i, m := range found {
		at = newest(at, m.ID.Time())
		if i == q.Size {
			view.Pages = q.nextAt(channelPath(ch.ID)+"/scheduled-messages", m.PathID(), strconv.FormatInt(m.DueMs, 10)+"."+
				m.ID.String())
			break
		}
		view.Result = append(view.Result, scheduledPath(ch.ID, m.PathID()))
	}
	view.OldResult, view.OldPages = view.Result, view.Pages
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// schedulePlace reads where a schedule was in the list: its time and its ID. nil: it is no place.
func schedulePlace(text string) *durable.Scheduled {
	due, id, _ := strings.Cut(text, ".")
	ms, err := strconv.ParseInt(due, 10, 64)
	if err != nil {
		return nil
	}
	at := &durable.Scheduled{DueMs: ms}
	if at.ID, err = ident.Parse(id); err != nil {
		return nil
	}
	return at
}

// readStatuses reads the filter of a list of scheduled messages, and adds it to the parameters
// that links carry.
func readStatuses(rc *fasthttp.RequestCtx, keep url.Values) ([]durable.ScheduleStatus, error) {
	asked := map[durable.ScheduleStatus]bool{}
	for _, b := range rc.QueryArgs().PeekMulti("status") {
		switch string(b) {
		case "101", apitype.Scheduled:
			asked[durable.ScheduleWaiting] = true
		case "102", apitype.Dispatched:
			asked[durable.ScheduleOver] = true
		default:
			return nil, errStatus
		}
	}
	all := []durable.ScheduleStatus{durable.ScheduleWaiting, durable.ScheduleOver}
	if len(asked) != 1 {
		return all, nil
	}
	if asked[durable.ScheduleWaiting] {
		keep.Set("status", "101")
		return all[:1], nil
	}
	keep.Set("status", "102")
	return all[1:], nil
}

// countMessages answers how many messages a channel has in each status. A message is dispatched
// when it is stored, so none is counted as acknowledged.
func (a *API) countMessages(ctx context.Context, rc *fasthttp.RequestCtx) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	c, err := a.o.Store.Count(ctx, ch.No, mostCounted)
	if err != nil {
		return err
	}
	count := func(n int, link string) apitype.StatusCount {
		return apitype.StatusCount{Count: n, AtLeast: n >= mostCounted,
			Links: apitype.CountLinks{Messages: channelPath(ch.ID) + link}}
	}
	view := apitype.MessageCounts{Counts: apitype.StatusCounts{
		Dispatched:          count(c.Messages, "/messages?status=102"),
		ScheduledWaiting:    count(c.Waiting, "/scheduled-messages?status=101"),
		ScheduledDispatched: count(c.Over, "/scheduled-messages?status=102"),
	}}
	if c.NextMs > 0 {
		view.Next = &apitype.Time{Time: time.UnixMilli(c.NextMs)}
	}
	return answerJSON(rc, fasthttp.StatusOK, view)
}
