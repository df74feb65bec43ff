package pull

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/redisq"
)

// maxUpdates bounds one batch update. It equals the bound of a batch claim.
const maxUpdates = maxClaimed

// An update is one entry of a batch update.
type update struct {
	ID                 string
	Lease              string
	NextState          string
	IncrementalTimeout int64
	Timeout            int64 // 0: as the consumer has it
	Delay              int64
	Failed             bool
	Reason, Detail     string
	// Response, or ResponseBase64, is the response to the message, which is stored with DELIVERED.
	Response, ResponseBase64 *string
	ResponseType             string

	misread bool  // a member of the response is no text
	said    *said // the response, once it is admitted
	// now is of other ways in than the routes: a job that Failed is due at once, without the backoff.
	now bool
}

// UpdateJobs is POST /channel/{channel}/consumer/{consumer}/jobs: many transitions in one request.
// Each entry has its own answer, in the order of the request. A 202 to DELIVERED or DEAD is on
// disk.
func (p *Puller) UpdateJobs(rc *fasthttp.RequestCtx, body intake.Limit) {
	st, held, err := p.open(rc, body)
	defer body.Drop(rc, held)
	ctx, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
	defer cancel()
	var updates []update
	if err == nil {
		updates, err = parseUpdates(rc.Request.Body())
	}
	if err != nil {
		problem.Write(rc, problem.FromChange(err))
		return
	}
	for _, kind := range contactsOf(updates) {
		p.contact(rc, st.Consumer.No, kind)
	}
	begun := time.Now()
	u := p.update(ctx, st.Channel, st.Consumer, updates)
	if p.traces != nil {
		u.settled(rc, begun)
	}
	writeSmall(rc, u.appendResults)
}

// contactsOf returns the kinds of contact that a batch update is.
func contactsOf(updates []update) (kinds []presence.Kind) {
	renews := func(e update) bool { return e.NextState == "INFLIGHT" }
	if slices.ContainsFunc(updates, renews) {
		kinds = append(kinds, presence.Renewal)
	}
	if len(kinds) == 0 || slices.ContainsFunc(updates, func(e update) bool { return !renews(e) }) {
		kinds = append(kinds, presence.Move)
	}
	return kinds
}

// update makes the transitions of a batch.
func (p *Puller) update(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, updates []update) updating {
	u := updating{p: p, ch: ch, k: k, updates: updates, ids: make([]ident.ID, len(updates)),
		errs: make([]error, len(updates))}
	u.make(ctx)
	return u
}

var errUpdatesBody = problem.New(400, "invalid_body",
	`The body must be a JSON object like {"Updates":[{"ID":"...","Lease":"...","NextState":"DELIVERED"}]}.`)

func parseUpdates(body []byte) (updates []update, err error) {
	updates, ok := plainUpdates(body)
	switch {
	case !ok:
		return anyUpdates(body)
	case len(updates) > maxUpdates:
		return nil, errTooMany
	}
	return updates, nil
}

// updatesMembers are the members of the body of a batch update; updateMembers are those of an
// entry.
var (
	updatesMembers = []string{"Updates"}
	updateMembers  = []string{"ID", "Lease", "NextState", "IncrementalTimeout", "Timeout", "Delay", "Failed",
		"Reason", "Detail", "Response", "ResponseBase64", "ResponseType"}
)

// anyUpdates reads the body of a batch update in any valid JSON form. It refuses unknown members: if a
// misspelt Lease were ignored, the update of a worker that lost the job would be accepted.
func anyUpdates(body []byte) (updates []update, err error) {
	r := jsonread.Open(body)
	defer r.Close()
	err = eachMember(r, updatesMembers, func(string) error {
		updates = []update{}
		return r.Array(func() error {
			if len(updates) == maxUpdates {
				return errTooMany
			}
			updates = append(updates, update{})
			u := &updates[len(updates)-1]
			return eachMember(r, updateMembers, func(member string) error { return u.read(r, member) })
		})
	})
	if err == nil {
		err = r.End()
	}
	if err == nil && updates == nil {
		err = errUpdatesBody
	}
	return updates, unread(err, errUpdatesBody)
}

// read reads the value of a member.
func (u *update) read(r *jsonread.Reader, member string) (err error) {
	var text []byte
	switch member {
	case "ID":
		text, err = r.Text()
		u.ID = string(text)
	case "Lease":
		text, err = r.Text()
		u.Lease = string(text)
	case "NextState":
		text, err = r.Text()
		u.NextState = string(text)
	case "IncrementalTimeout":
		u.IncrementalTimeout, err = r.Int()
	case "Timeout":
		u.Timeout, err = r.Int()
	case "Delay":
		u.Delay, err = r.Int()
	case "Failed":
		u.Failed, err = r.Bool()
	case "Reason":
		text, err = r.Text()
		u.Reason = cutTo(string(text), maxReason)
	case "Detail":
		text, err = r.Text()
		u.Detail = cutTo(string(text), maxDetail)
	case "Response", "ResponseBase64", "ResponseType":
		err = u.readResponse(r, member)
	}
	return err
}

// Bounds of what a worker says of a job, bytes. More is cut off.
const (
	maxReason = 255
	maxDetail = 1 << 10
)

// cutTo returns s as at most n bytes of UTF-8.
func cutTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// tell puts what the worker says into the outcome; otherwise is the failure where it gives no reason.
func (u *update) tell(out *durable.Outcome, otherwise string) {
	out.Error, out.Answer = cmp.Or(u.Reason, otherwise), []byte(u.Detail)
}

// An updating is one batch update under way. errs[i] is the answer to entry i; nil means 202.
type updating struct {
	p       *Puller
	ch      *catalogue.Channel
	k       *durable.Consumer
	updates []update
	ids     []ident.ID
	errs    []error
	sinks   []answerTo          // memory for finish; nil: it takes its own
	of      []*durable.Consumer // the generation of each entry; nil: all are of k
}

var (
	errNextState = problem.New(400, "invalid_next_state", "NextState must be DELIVERED, DEAD, QUEUED or INFLIGHT.")
	errNeedLease = problem.New(400, "lease_required", "The Lease of the job is needed to give it back or to extend it.")
	errLength    = problem.Newf(400, "invalid_timeout", "Timeout goes only with INFLIGHT, as whole seconds from 1 to %d.",
		MaxIncrementalTimeout)
	errDelay = problem.Newf(400, "invalid_delay", "Delay goes only with QUEUED, as whole seconds from 0 to %d.",
		MaxIncrementalTimeout)
	errFailed  = problem.New(400, "invalid_failed", "Failed goes only with QUEUED.")
	errReason  = problem.New(400, "invalid_reason", "Reason and Detail go only with DEAD and QUEUED.")
	errTooMany = problem.Newf(400, "too_many_updates", "One request updates at most %d jobs.", maxUpdates)
	errTwice   = problem.New(400, "job_twice", "The job is in this request twice; the first entry counts.")
)

func (u *updating) run(ctx context.Context) {
	seen := map[ident.ID]bool{}
	var finish, giveBack []int
	extend := map[time.Duration][]int{} // by the length of the lease
	for i := range u.updates {
		e := &u.updates[i]
		if u.errs[i] = u.admit(ctx, i, e); u.errs[i] != nil {
			continue
		}
		if seen[u.ids[i]] {
			u.errs[i] = errTwice
			continue
		}
		seen[u.ids[i]] = true
		switch e.NextState {
		case "DELIVERED", "DEAD":
			finish = append(finish, i)
		case "QUEUED":
			giveBack = append(giveBack, i)
		case "INFLIGHT":
			lease := u.p.leaseFor(u.k, e)
			extend[lease] = append(extend[lease], i)
		}
	}
	u.finish(ctx, finish)
	u.giveBack(ctx, giveBack)
	for lease, entries := range extend {
		u.extend(ctx, lease, entries)
	}
}

// admit checks one entry on its own.
func (u *updating) admit(ctx context.Context, i int, e *update) error {
	job, err := ident.Parse(e.ID)
	if err != nil {
		return errJobNotFound
	}
	id, pos, ok := job.Split()
	if !ok {
		return errJobNotFound
	}
	if pos != u.k.Position {
		return u.p.foreign(ctx, u.ch, id, pos)
	}
	u.ids[i] = id
	if stateLabel(e.NextState) == refused {
		return errNextState
	}
	if e.Lease == "" && (e.NextState == "QUEUED" || e.NextState == "INFLIGHT") {
		return errNeedLease
	}
	if err := e.belongs(); err != nil {
		return err
	}
	return u.p.hear(u.ch, u.k, e)
}

// belongs refuses members that do not belong to NextState, or are out of range.
func (e *update) belongs() error {
	if e.IncrementalTimeout < 0 || e.IncrementalTimeout > MaxIncrementalTimeout || e.IncrementalTimeout > 0 &&
		e.NextState != "INFLIGHT" {
		return errTimeout
	}
	if e.Timeout < 0 || e.Timeout > MaxIncrementalTimeout || e.Timeout > 0 && e.NextState != "INFLIGHT" {
		return errLength
	}
	if e.Delay < 0 || e.Delay > MaxIncrementalTimeout || e.Delay > 0 && e.NextState != "QUEUED" {
		return errDelay
	}
	if e.Failed && e.NextState != "QUEUED" {
		return errFailed
	}
	if e.Reason+e.Detail != "" && e.NextState != "QUEUED" && e.NextState != "DEAD" {
		return errReason
	}
	if e.responds() && e.NextState != "DELIVERED" {
		return errResponseState
	}
	return nil
}

func (u *updating) fail(entries []int, err error) {
	for _, i := range entries {
		u.errs[i] = err
	}
}

// finish stores DELIVERED and DEAD outcomes and waits once for all of them.
func (u *updating) finish(ctx context.Context, entries []int) {
	if len(entries) == 0 {
		return
	}
	_, standings, err := u.probe(ctx, entries)
	if err != nil {
		u.fail(entries, err)
		return
	}
	answers, waiting := make(chan int, len(entries)), map[int]*answerTo{}
	if u.sinks == nil {
		u.sinks = make([]answerTo, len(entries))
	}
	for n, i := range entries {
		m := move{p: u.p, ch: u.ch, k: u.k, id: u.ids[i], e: u.updates[i]}
		r, accept, err := m.outcome(ctx, standings[n])
		if !accept {
			u.errs[i] = err
			continue
		}
		room, err := u.p.roomFor(u.k, r.Outcome.Exchange)
		if err != nil {
			u.errs[i] = err
			continue
		}
		a := &u.sinks[n]
		*a = answerTo{i: i, answers: answers, room: room}
		r.Urgency, r.Sink, waiting[i] = outcome.Urgent, a, a
		u.p.outcomes.Add(r)
	}
	u.wait(ctx, answers, waiting, func(i int) {
		u.p.verifier.Cache.Done(u.ids[i])
		u.p.book.remove(u.k.No, u.ids[i], "")
		if len(entries) == 1 && u.updates[i].NextState == "DELIVERED" {
			u.p.recent.delivered(u.k.No, u.ids[i]) // workers with one job each may ask for it at once
		}
	})
}

// probe returns the jobs of the entries, and what Redis knows of them.
func (u *updating) probe(ctx context.Context, entries []int) ([]ident.ID, []redisq.Standing, error) {
	ids := u.ids
	if len(entries) < len(ids) {
		ids = make([]ident.ID, len(entries))
		for n, i := range entries {
			ids[n] = u.ids[i]
		}
	}
	standings, err := u.p.probe(ctx, u.k.No, ids)
	return ids, standings, err
}

// probe returns what Redis knows of jobs. Requests about one job each share a call.
func (p *Puller) probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error) {
	if len(ids) != 1 {
		return p.queue.Probe(ctx, consumer, ids)
	}
	return p.probes.ask(ctx, consumer, ids[0])
}

// wait takes the answers to the waiting entries, and calls stored for each outcome that is on disk.
func (u *updating) wait(ctx context.Context, answers <-chan int, waiting map[int]*answerTo, stored func(i int)) {
	for len(waiting) > 0 {
		select {
		case i := <-answers:
			u.errs[i] = waiting[i].err
			delete(waiting, i)
			if u.errs[i] == nil {
				stored(i)
			}
		case <-ctx.Done():
			for i := range waiting {
				u.errs[i] = durable.ErrOutcomeUnknown
			}
			return
		}
	}
}

// An answerTo is the sink of the outcome of entry i. Its channel has room for all answers.
type answerTo struct {
	i       int
	answers chan<- int
	err     error           // of storing the outcome, once i is in answers
	room    *exchange.Taken // of the response; nil: it has none
}

func (*answerTo) Ended(bool)             {}
func (*answerTo) Retrying(time.Duration) {}

func (a *answerTo) Done(err error) {
	if a.room != nil {
		a.room.Close()
	}
	a.err = err
	a.answers <- a.i
}

func (u *updating) leases(entries []int) []redisq.Lease {
	leases := make([]redisq.Lease, len(entries))
	for n, i := range entries {
		leases[n] = redisq.Lease{ID: u.ids[i], Token: u.updates[i].Lease}
	}
	return leases
}

func (u *updating) extend(ctx context.Context, lease time.Duration, entries []int) {
	until := time.Now().Add(lease)
	moved, err := u.p.queue.Extend(ctx, u.k.No, u.leases(entries), lease)
	u.answer(entries, moved, err)
	for n, i := range entries {
		if err == nil && moved[n] {
			u.p.book.extend(u.k.No, u.ids[i], u.updates[i].Lease, until)
		}
	}
}

func (u *updating) answer(entries []int, moved []bool, err error) {
	for n, i := range entries {
		switch {
		case err != nil:
			u.errs[i] = err
		case !moved[n]:
			u.errs[i] = errLeaseLost
		}
	}
}

func (u *updating) appendResults(b []byte) []byte {
	type outcome struct {
		next   string
		status int
	}
	counts := map[outcome]int{}
	b = append(b, `{"Result":[`...)
	for i, e := range u.updates {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"ID":`...)
		b = jsontext.Append(b, e.ID)
		status, code := 202, ""
		if u.errs[i] != nil {
			p := problem.FromChange(u.errs[i])
			status, code = p.Status, p.Code
		}
		counts[outcome{stateLabel(e.NextState), status}]++
		b = append(b, `,"Status":`...)
		b = strconv.AppendInt(b, int64(status), 10)
		if code != "" {
			b = append(b, `,"code":`...)
			b = jsontext.Append(b, code)
		}
		b = append(b, '}')
	}
	for o, n := range counts {
		u.p.metrics.Transitions.WithLabelValues(o.next, strconv.Itoa(o.status)).Add(float64(n))
	}
	return append(b, "]}\n"...)
}

// stateLabel keeps arbitrary client input out of metric labels.
func stateLabel(next string) string {
	switch next {
	case "INFLIGHT", "DELIVERED", "DEAD", "QUEUED":
		return next
	}
	return refused
}
