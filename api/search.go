package api

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// A search is a list of messages that looks at each of them: newest or oldest first, of a time, of a
// producer, for a consumer and with a status of its job or a text in the last error of that, with a text in
// the payload. A page looks at a bounded number of messages, in a bounded time, and says at how many; the
// link to the next page goes on behind them.

// searchQueries are the parameters that make a list of messages a search.
var searchQueries = []string{"order", "from", "to", "producer", "consumer", "contains", "error"}

// jobStatuses are the statuses of messages that are those of their job for a consumer.
var jobStatuses = []string{jobs.Queued, jobs.Delayed, jobs.InFlight, jobs.Delivered, jobs.Dead}

const (
	// searchBudget is the time in which a page begins to look at messages.
	searchBudget = 150 * time.Millisecond
	// searchFirst is the number of messages of the first statement, searchPayloads that where their payloads
	// are read. The second statement has at most searchMore times as many, and half of what the time of the
	// first one allows: what it reads may not be in the memory of the store.
	searchFirst, searchPayloads, searchMore = 500, 150, 10
	// maxContains is the longest text that is looked for, in payloads and in errors, bytes.
	maxContains = 1024
)

// searches reports whether a request for a list of messages is a search.
func searches(rc *fasthttp.RequestCtx) bool {
	args := rc.QueryArgs()
	for _, name := range searchQueries {
		if args.Has(name) {
			return true
		}
	}
	for _, b := range args.PeekMulti("status") {
		if isJobStatus(string(b)) != "" {
			return true
		}
	}
	return false
}

// isJobStatus returns the status of a job in its own spelling, "" for another text.
func isJobStatus(text string) string {
	for _, s := range jobStatuses {
		if strings.EqualFold(s, text) {
			return s
		}
	}
	return ""
}

var errTwoStatuses = problem.New(fasthttp.StatusBadRequest, "invalid_status",
	"The status of a job can be asked for alone, without another one.")

// A messageSearch is what a client looks for.
type messageSearch struct {
	pageQuery
	ch       *catalogue.Channel
	in       durable.IDRange
	producer uint32 // 0: of any
	named    bool   // producer is given
	consumer *durable.Consumer
	status   string // of its job; "": any
	contains []byte // nil: any payload
	fault    string // in the last error of its job, lower case; "": any job

	seen  int // messages that were looked at
	found []*durable.Message
	next  *durable.Message // where the next page begins; nil: this is the last one
}

// searchMessages answers a page of a search.
func (a *API) searchMessages(ctx context.Context, rc *fasthttp.RequestCtx, q pageQuery) error {
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	s := &messageSearch{pageQuery: q, ch: ch}
	if err := a.readSearch(ctx, rc, s); err != nil {
		return err
	}
	if err := a.search(ctx, s); err != nil {
		return err
	}
	view := apitype.MessageList{Result: make([]string, len(s.found)), Searched: &s.seen}
	at := ch.ChangedAt
	for i, m := range s.found {
		view.Result[i] = messagePath(ch.ID, m.PathID())
		at = newest(at, m.ID.Time())
	}
	if s.next != nil {
		view.Pages = s.nextAt(channelPath(ch.ID)+"/messages", s.next.PathID(), s.next.ID.String())
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// readSearch reads the parameters of a search.
func (a *API) readSearch(ctx context.Context, rc *fasthttp.RequestCtx, s *messageSearch) error {
	args := rc.QueryArgs()
	for _, name := range searchQueries {
		if len(args.PeekMulti(name)) > 1 {
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s occurs more than once.", name)
		}
	}
	usual := "asc"
	if args.Has("contains") {
		usual, s.contains = "desc", bytes.Clone(args.Peek("contains")) // what was sent last is looked for first
		if len(s.contains) == 0 || len(s.contains) > maxContains {
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_query",
				"The parameter contains must be a text of 1 to %d bytes.", maxContains)
		}
		s.keep.Set("contains", string(s.contains))
	}
	order, err := readOne(rc, s.pageQuery, "order", usual, "asc", "desc")
	if err != nil {
		return err
	}
	s.in.Back = order == "desc"
	if err := a.readSearchOf(rc, s); err != nil {
		return err
	}
	return a.readRange(ctx, rc, s)
}

// readSearchOf reads producer, consumer and status.
func (a *API) readSearchOf(rc *fasthttp.RequestCtx, s *messageSearch) error {
	args := rc.QueryArgs()
	if args.Has("producer") {
		p := a.o.Catalogue.Producer(string(args.Peek("producer")))
		if p == nil {
			return problem.New(fasthttp.StatusNotFound, "producer_not_found", "The parameter producer names no producer.")
		}
		s.producer, s.named = p.No, true
		s.keep.Set("producer", p.ID)
	}
	if args.Has("consumer") {
		if s.consumer = a.o.Catalogue.Consumer(s.ch.ID, string(args.Peek("consumer"))); s.consumer == nil {
			return errNoConsumer
		}
		s.keep.Set("consumer", s.consumer.ID)
	}
	if text := string(args.Peek("error")); args.Has("error") {
		switch {
		case text == "" || len(text) > maxContains:
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_query",
				"The parameter error must be a text of 1 to %d bytes.", maxContains)
		case s.consumer == nil:
			return problem.New(fasthttp.StatusBadRequest, "invalid_query",
				"The parameter error is about a job: name its consumer with the parameter consumer.")
		}
		s.fault = strings.ToLower(text)
		s.keep.Set("error", text)
	}
	for _, b := range args.PeekMulti("status") {
		job := isJobStatus(string(b))
		switch {
		case job == "":
		case s.status != "":
			return errTwoStatuses
		case s.consumer == nil:
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_status",
				"The status %s is that of a job: name its consumer with the parameter consumer.", job)
		default:
			s.status = job
		}
	}
	if s.status != "" {
		if len(args.PeekMulti("status")) > 1 {
			return errTwoStatuses
		}
		s.keep.Set("status", s.status)
		return nil
	}
	none, err := readMessageStatus(rc, s.keep)
	if none { // what is stored counts as dispatched
		s.in.From, s.in.To = ident.Max(), ident.ID{}
		s.Size = 0
	}
	return err
}

// readRange reads from and to, and where the page begins.
func (a *API) readRange(ctx context.Context, rc *fasthttp.RequestCtx, s *messageSearch) error {
	from, to, err := readTimes(string(rc.URI().QueryString()), time.UnixMilli(a.o.NowMs()).UTC())
	if err != nil {
		return err
	}
	if s.Size == 0 {
		return nil
	}
	s.in.From, s.in.To = firstIDAt(from), ident.Max()
	args := rc.QueryArgs()
	if args.Has("from") {
		s.keep.Set("from", from.Format(time.RFC3339Nano))
	}
	if args.Has("to") {
		s.in.To = ident.Before(to.UnixMilli())
		s.keep.Set("to", to.Format(time.RFC3339Nano))
	}
	if s.Since != nil {
		if since := firstIDAt(*s.Since); since.Compare(s.in.From) > 0 {
			s.in.From = since
		}
	}
	if s.First == "" {
		return nil
	}
	at, err := a.firstMessage(ctx, s.ch, s.pageQuery, a.namer(rc))
	switch {
	case errors.Is(err, errUnknownMessage):
		return problem.New(fasthttp.StatusBadRequest, "unknown_first",
			"The parameter first names no message of the channel.")
	case err != nil:
		return err
	case s.in.Back && at.Compare(s.in.To) < 0:
		s.in.To = at
	case !s.in.Back && at.Compare(s.in.From) > 0:
		s.in.From = at
	}
	return nil
}

// search looks at messages until the page is full, the range is at its end, or the time is over: in two
// statements, of which the second one has as many messages as the time of the first one allows.
func (a *API) search(ctx context.Context, s *messageSearch) error {
	limit := searchFirst
	if s.contains != nil {
		limit = searchPayloads
	}
	begun := time.Now()
	for statement := 1; ; statement++ {
		if s.in.From.Compare(s.in.To) > 0 {
			return nil
		}
		at := time.Now()
		rows, err := a.searchRows(ctx, s, limit+1)
		if err != nil {
			return err
		}
		more := len(rows) > limit
		full, err := a.pick(ctx, s, rows[:min(limit, len(rows))])
		if err != nil || full || !more {
			return err
		}
		behind := &rows[limit].Message
		if s.in.Back {
			s.in.To = behind.ID
		} else {
			s.in.From = behind.ID
		}
		left, took := searchBudget-time.Since(begun), max(time.Since(at), 100*time.Microsecond)
		if limit = int(min(int64(limit)*int64(left)/int64(took)/2, int64(searchMore*limit))); statement == 2 || limit < 1 {
			s.next = behind
			return nil
		}
	}
}

// searchRows reads messages of the range, with the states of the jobs that count.
func (a *API) searchRows(ctx context.Context, s *messageSearch, limit int) ([]durable.JobRow, error) {
	of := s.consumer
	if of == nil {
		of = &durable.Consumer{ChannelNo: s.ch.No} // no consumer has the number 0
	}
	if s.contains != nil {
		return a.o.Store.SearchRows(ctx, of, s.in, s.contains, limit)
	}
	return a.o.Store.JobRows(ctx, of, s.in, limit)
}

// pick adds what is looked for to the page. full: the page is, and next is behind it.
func (a *API) pick(ctx context.Context, s *messageSearch, rows []durable.JobRow) (full bool, err error) {
	for len(rows) > 0 {
		part := rows[:min(len(rows), redisq.MaxBatch)]
		rows = rows[len(part):]
		has, err := a.having(ctx, s, part)
		if err != nil {
			return false, err
		}
		for i := range part {
			if has[i] && len(s.found) == s.Size {
				s.next = &part[i].Message
				return true, nil
			}
			s.seen++
			if has[i] {
				s.found = append(s.found, &part[i].Message)
			}
		}
	}
	return false, nil
}

// having reports which messages are looked for. Redis is asked where it alone can tell.
func (a *API) having(ctx context.Context, s *messageSearch, rows []durable.JobRow) ([]bool, error) {
	has := make([]bool, len(rows))
	var open []durable.JobRow // of which Redis knows more
	var at []int
	for i := range rows {
		r := &rows[i]
		over := r.State.Status.Over()
		switch {
		case !r.Found, s.named && r.ProducerNo != s.producer, s.consumer != nil && !s.consumer.Concerns(r.Head()),
			s.fault != "" && !strings.Contains(strings.ToLower(r.State.Error), s.fault):
		case s.status == "":
			has[i] = true
		case s.status == jobs.Delivered:
			has[i] = r.State.Status == durable.Delivered
		case s.status == jobs.Dead:
			has[i] = r.State.Status == durable.Dead
		case !over:
			open, at = append(open, *r), append(at, i)
		}
	}
	if len(open) == 0 {
		return has, nil
	}
	are, err := a.o.Lister.Are(ctx, s.consumer, s.status, open)
	for i, is := range are {
		has[at[i]] = is
	}
	return has, err
}
