package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// A worker is one worker of a pull consumer.
type worker struct {
	w  *world
	k  durable.Consumer
	r  chance
	at time.Duration // of the last answer
}

// A claimedJob is a job as the claim route shows it.
type claimedJob struct {
	ID, Lease string
	Attempt   int
	Priority  int
	Message   struct{ Payload, MessageID string }
}

// pull works until the world closes.
func (w *world) pull(k durable.Consumer, n int) {
	p := worker{w: w, k: k, r: draw(w.seed, word("pull"), uint64(k.No), uint64(n))}
	for !w.closing.Load() {
		time.Sleep(p.r.between(5*time.Millisecond, 150*time.Millisecond))
		p.round()
	}
}

// round is one turn of a worker: to ask for jobs, to work, to report.
func (p *worker) round() {
	p.w.rounds.begin()
	defer p.w.rounds.end()
	if p.w.resting.Load() {
		return
	}
	b := p.w.broker(p.r.below(p.w.plan.brokers))
	switch {
	case b == nil:
	case p.r.hit(300):
		p.single(b)
	default:
		p.batch(b)
	}
}

// ask posts to a route of pull consumers; nil: no answer.
func (p *worker) ask(b *broker, route func(*fasthttp.RequestCtx, intake.Limit), query, job, lease,
	body string) *fasthttp.RequestCtx {
	ch := p.w.store.channel(p.k.ChannelNo)
	values := map[string]string{"channel": ch.ID, "consumer": p.k.ID, "job": job}
	rc := request(values, map[string]string{"X-Broker-Channel-Token": ch.Token, "X-Broker-Consumer-Token": p.k.Token,
		pull.LeaseHeader: lease}, body)
	rc.URI().SetQueryString(query)
	route(rc, intake.NewLimit(b.bodies, 64<<10))
	p.at = p.w.now()
	if !b.life.awake() {
		return nil
	}
	return rc
}

// batch claims jobs, works, and reports.
func (p *worker) batch(b *broker) {
	rc := p.ask(b, b.plane.ClaimJobs, fmt.Sprintf("limit=%d&wait=%d&timeout=%d", 1+p.r.below(4), p.r.below(2),
		1+p.r.below(2)), "", "", "")
	if rc == nil || rc.Response.StatusCode() != 200 {
		return
	}
	var answer struct{ Result []claimedJob }
	if err := json.Unmarshal(rc.Response.Body(), &answer); err != nil {
		p.w.checker.report(none, "I4: a claim is answered %q: %v", rc.Response.Body(), err)
		return
	}
	for _, j := range answer.Result {
		p.got(b, j)
	}
	for _, j := range answer.Result {
		p.finish(j)
	}
}

// got checks a job that was given out.
func (p *worker) got(b *broker, j claimedJob) {
	job, err := ident.Parse(j.ID)
	id, pos, ok := job.Split()
	if err != nil || !ok || pos != p.k.Position {
		p.w.checker.report(id, "I4: consumer %d got job %q", p.k.No, j.ID)
		return
	}
	p.w.arrived(p.k, id, j.Message.MessageID, strconv.Itoa(j.Priority), j.Message.Payload)
	p.w.checker.answered(b.life, p.k.No, id, j.Lease, p.at)
	p.w.checker.hand(b.life, p.k, id, j.Attempt)
}

// finish does with a job what workers do.
func (p *worker) finish(j claimedJob) {
	state, more := "DELIVERED", ""
	if p.w.faulty() {
		time.Sleep(p.r.between(0, 100*time.Millisecond))
		switch p.r.below(12) {
		case 0:
			return // dies
		case 1:
			time.Sleep(p.r.between(0, 3*time.Second)) // reports late
		case 2:
			state = "DEAD"
		case 3:
			state, more = "QUEUED", fmt.Sprintf(`,"Delay":%d`, p.r.below(2))
		case 4:
			state = "INFLIGHT"
		case 5:
			state, more = "QUEUED", `,"Failed":true`
		}
	}
	p.update(j, state, more)
	if state == "INFLIGHT" {
		p.update(j, "DELIVERED", "")
	}
}

// update reports a job through the batch route, again while the answer is unknown.
func (p *worker) update(j claimedJob, state, more string) {
	p.declares(j.ID, state)
	body := fmt.Sprintf(`{"Updates":[{"ID":%q,"Lease":%q,"NextState":%q%s}]}`, j.ID, j.Lease, state, more)
	for range 4 {
		if b := p.w.broker(p.r.below(p.w.plan.brokers)); b != nil {
			rc := p.ask(b, b.plane.UpdateJobs, "", "", "", body)
			if rc != nil {
				var answer struct{ Result []struct{ Status int } }
				if json.Unmarshal(rc.Response.Body(), &answer) == nil && len(answer.Result) == 1 && answer.Result[0].Status < 500 {
					p.told(j.ID, state, answer.Result[0].Status)
					return
				}
			}
		}
		time.Sleep(p.r.between(20*time.Millisecond, 200*time.Millisecond))
	}
}

// single lists jobs, takes one by name and reports it.
func (p *worker) single(b *broker) {
	rc := p.ask(b, b.plane.QueuedJobs, "limit=3", "", "", "")
	if rc == nil || rc.Response.StatusCode() != 200 {
		return
	}
	var page struct{ Result json.RawMessage }
	var jobs []struct{ ID string }
	if json.Unmarshal(rc.Response.Body(), &page) != nil || json.Unmarshal(page.Result, &jobs) != nil || len(jobs) == 0 {
		return
	}
	id := jobs[p.r.below(len(jobs))].ID
	if longest := p.w.plan.ponder; longest > 0 {
		time.Sleep(p.r.between(0, longest))
	}
	rc = p.ask(b, b.plane.MoveJob, "", id, "", `{"NextState":"INFLIGHT"}`)
	if rc == nil || rc.Response.StatusCode() != 202 || len(rc.Response.Header.Peek(pull.LeaseHeader)) == 0 {
		return
	}
	lease := string(rc.Response.Header.Peek(pull.LeaseHeader))
	if message, ok := messageOf(id); ok {
		p.w.checker.answered(b.life, p.k.No, message, lease, p.at)
	}
	if p.w.faulty() && p.r.hit(200) {
		time.Sleep(p.r.between(0, 2*time.Second))
	}
	state := "DELIVERED"
	if p.w.faulty() && p.r.hit(100) {
		state = "DEAD"
	}
	p.declares(id, state)
	if b = p.w.broker(p.r.below(p.w.plan.brokers)); b != nil {
		if rc = p.ask(b, b.plane.MoveJob, "", id, lease, fmt.Sprintf(`{"NextState":%q}`, state)); rc != nil {
			p.told(id, state, rc.Response.StatusCode())
		}
	}
}

// declares notes what the worker is about to say of a job.
func (p *worker) declares(job, state string) {
	if id, ok := messageOf(job); ok && (state == "DELIVERED" || state == "DEAD") {
		p.w.checker.claims(jobKey{p.k.No, id})
	}
}

// told checks an answer: what is 202 is on disk.
func (p *worker) told(job, state string, status int) {
	id, ok := messageOf(job)
	if !ok || status != 202 {
		return
	}
	p.w.told("told", fmt.Sprintf("consumer %d: %s of %s is 202", p.k.No, state, id))
	s := p.w.store
	s.mu.Lock()
	got := s.look().state(jobKey{p.k.No, id}).Status
	// Retention removes what is over, before its worker hears of it at times.
	gone := slices.ContainsFunc(s.purged, func(m *durable.Message) bool { return m.ID == id })
	s.mu.Unlock()
	if state == "DELIVERED" && !gone && got != durable.Delivered && !p.w.checker.outcomesLost() {
		p.w.checker.report(id, "I1: consumer %d was told that its DELIVERED is stored; the store has %d", p.k.No, got)
	}
}

// messageOf is the message that the ID of a job names.
func messageOf(job string) (ident.ID, bool) {
	parsed, err := ident.Parse(job)
	if err != nil {
		return none, false
	}
	id, _, ok := parsed.Split()
	return id, ok
}
