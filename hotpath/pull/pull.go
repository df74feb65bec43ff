// Package pull has the routes of pull consumers: the list of queued jobs, the state machine of one
// job, and the batch routes that claim and move many jobs. Package verify verifies a job before a
// client receives it. Package outcome stores its outcome.
package pull

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// Bounds of queued-jobs. A larger limit is clipped.
const (
	defaultListed = 25
	maxListed     = 100
)

// A Queue is the part of redisq.Queue that pull consumers work with.
type Queue interface {
	Incarnation() uint64
	Peek(ctx context.Context, consumer uint32, after *redisq.Cursor, limit int) ([]redisq.Waiting, error)
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	ClaimEach(ctx context.Context, consumer uint32, wishes []redisq.Wish) ([]redisq.Grant, error)
	Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error)
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Stats(ctx context.Context, consumer uint32) (redisq.Stats, error)
	Claim(ctx context.Context, consumer uint32, n int, lease time.Duration, limits redisq.Limits) (redisq.Claim, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Nack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	GiveBack(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
}

// A Store is the part of durable.Store that pull consumers work with.
type Store interface {
	Reopen(ctx context.Context, consumerNo uint32, id ident.ID, nowMs int64) (durable.OpenJob, error)
	Backlog(ctx context.Context, k durable.Consumer, limit int) (durable.Backlog, error)
	Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error)
	PostExchange(ctx context.Context, e durable.Exchange) error
}

// An Outcomes stores outcomes: an outcome.Committer.
type Outcomes interface {
	Add(r outcome.Entry)
	Store(ctx context.Context, r outcome.Entry) error
}

// Options assemble the pull routes.
type Options struct {
	Catalogue *catalogue.Catalogue
	Queue     Queue
	Store     Store
	Verifier  *verify.Verifier
	Order     verify.Order // of ordered consumers; may be nil where there are none
	Outcomes  Outcomes
	NowMs     func() int64 // the clock of the store
	// Touched reports consumers that now have leases or delayed jobs. Refill reports consumers
	// whose window has room while the store holds more jobs. Neither may block.
	Touched  func(consumer uint32)
	Refill   func(consumer uint32)
	Visible  time.Duration // visibility timeout without IncrementalTimeout, of consumers without a timeout of their own
	Policies *policy.Book  // limits of the consumers
	Metrics  *metrics.Metrics
	Answers  *share.Bound // of all large answers; nil: a bound of its own
	Waiters  *share.Bound // of claims that wait, one for each; nil: a bound of its own
	// Behind reports whether this broker has stored a message of the consumer that Redis may not have
	// yet. nil: never.
	Behind func(k *durable.Consumer) bool
	// Tell tells other brokers that a consumer has due jobs again. It may not block. nil: there are none.
	Tell func(consumer uint32)
	// Room is the memory of responses that are not stored yet; nil: a room of its own. Answered is told of
	// responses that were stored without an outcome. It may not block; nil: nobody is.
	Room     *exchange.Room
	Answered func(consumer uint32, id ident.ID)
	Stopping <-chan struct{}  // closed when long polls must answer
	Presence *presence.Keeper // hears of the contacts of workers; may be nil
	Traces   *tracing.Tracer  // nil: none
	Log      *slog.Logger
}

// A Puller has the routes of pull consumers.
type Puller struct {
	catalogue *catalogue.Catalogue
	queue     Queue
	store     Store
	verifier  *verify.Verifier
	order     verify.Order
	outcomes  Outcomes
	nowMs     func() int64
	touched   func(consumer uint32)
	refill    func(consumer uint32)
	visible   time.Duration
	policies  *policy.Book
	metrics   *metrics.Metrics
	answers   *share.Bound
	stopping  <-chan struct{}
	log       *slog.Logger
	tell      func(consumer uint32)
	behind    func(k *durable.Consumer) bool
	presence  *presence.Keeper
	traces    *tracing.Tracer
	room      *exchange.Room
	answered  func(consumer uint32, id ident.ID)

	waiters waiters
	recent  recentMoves
	book    *leaseBook
	fits    verify.Fits
	tasks   tasksOf
	claims  combiner[redisq.Wish, redisq.Grant] // of the single routes
	probes  combiner[ident.ID, redisq.Standing]
}

// New returns the pull routes.
func New(o Options) *Puller {
	p := &Puller{catalogue: o.Catalogue, queue: o.Queue, store: o.Store, verifier: o.Verifier, order: o.Order,
		outcomes: o.Outcomes, nowMs: o.NowMs,
		touched: o.Touched, refill: o.Refill, visible: o.Visible, policies: o.Policies, metrics: o.Metrics,
		answers: o.Answers, stopping: o.Stopping, tell: o.Tell, behind: o.Behind, presence: o.Presence,
		traces: o.Traces, room: o.Room, answered: o.Answered, recent: newRecentMoves(), log: o.Log}
	if p.room == nil {
		p.room = exchange.NewRoom()
	}
	if p.answered == nil {
		p.answered = func(uint32, ident.ID) {}
	}
	if p.behind == nil {
		p.behind = func(*durable.Consumer) bool { return false }
	}
	if p.answers == nil {
		p.answers = answer.NewBound(8 * answerBytes)
	}
	if p.waiters.places = o.Waiters; o.Waiters == nil {
		p.waiters.places = intake.NewWaiters()
	}
	p.book = newLeaseBook()
	p.claims.call, p.probes.call = p.queue.ClaimEach, p.queue.Probe
	return p
}

// Wake reports that a consumer may have due jobs: one of its long polls claims again. It never
// blocks.
func (p *Puller) Wake(consumer uint32) { p.waiters.Wake(p.catalogue.Account(consumer)) }

// returned is Wake for jobs that this broker gave back: the long polls of other brokers are told too.
func (p *Puller) returned(consumer uint32) {
	p.Wake(consumer)
	if p.tell != nil {
		p.tell(consumer)
	}
}

// errNotPull refuses a push consumer on the routes of pull consumers.
var errNotPull = problem.New(412, "consumer_not_pull", "The consumer is not a pull consumer.")

// errJobNotFound refuses a job that does not exist.
var errJobNotFound = problem.New(404, "job_not_found", "There is no such job.")

// open authorises a request and then loads its body. The caller drops the body with body.Drop(rc,
// taken). The request is checked again after its body, which may have come slowly.
func (p *Puller) open(rc *fasthttp.RequestCtx, body intake.Limit) (st catalogue.Standing, taken intake.Loaded,
	err error) {
	if st, err = p.authorize(request.Of(rc), rc); err == nil {
		taken, err = body.Load(rc, share.Consumer(st.Consumer.No))
	}
	if err == nil {
		err = still(&st)
	}
	return st, taken, err
}

func (p *Puller) authorize(ctx context.Context, rc *fasthttp.RequestCtx) (catalogue.Standing, error) {
	channelID, _ := rc.UserValue("channel").(string)
	consumerID, _ := rc.UserValue("consumer").(string)
	channelToken, token, err := credentials.Both(&rc.Request.Header, credentials.Consumer)
	if err != nil {
		return catalogue.Standing{}, err
	}
	st, err := p.catalogue.AdmitConsumer(ctx, channelID, channelToken, consumerID, token)
	if err == nil {
		err = p.pulls(rc, &st)
	}
	return st, err
}

// contact tells of a contact of a consumer, and of the worker that the request names.
func (p *Puller) contact(rc *fasthttp.RequestCtx, consumer uint32, kind presence.Kind) presence.Contact {
	if p.presence == nil {
		return presence.Contact{}
	}
	return p.presence.Contact(consumer, kind, rc.Request.Header.Peek(presence.Header), rc.RemoteAddr())
}

// still returns nil while the request may act as its pull consumer, as Standing.Check does. It costs
// one load while the catalogue has not changed.
func still(st *catalogue.Standing) error {
	if err := st.Check(); err != nil {
		return err
	}
	if st.Consumer.Type != durable.Pull {
		return errNotPull
	}
	return nil
}

// QueuedJobs is GET /channel/{channel}/consumer/{consumer}/queued-jobs: it lists due jobs, highest
// priority first, oldest first within a priority. It claims nothing.
func (p *Puller) QueuedJobs(rc *fasthttp.RequestCtx, body intake.Limit) {
	st, taken, err := p.open(rc, body)
	defer body.Drop(rc, taken)
	var page *queuedJobs
	if err == nil {
		p.contact(rc, st.Consumer.No, presence.List)
		page, err = p.list(rc, &st)
	}
	if err == nil {
		err = still(&st) // before it gets payloads
	}
	if err != nil {
		problem.Write(rc, problem.FromChange(err))
		return
	}
	size, kept := page.sizes()
	held, err := answer.Open(p.answers, share.Consumer(st.Consumer.No), size+kept)
	if err != nil {
		problem.Write(rc, problem.FromChange(err))
		return
	}
	page.why.tell(rc)
	rc.Response.Header.Set("Last-Modified", time.Now().UTC().Format(httpDate))
	writeJSON(rc, held, size, page.appendJSON)
}

// list returns a page. An empty first one says why it is empty; it is read again if jobs came in
// between.
func (p *Puller) list(rc *fasthttp.RequestCtx, st *catalogue.Standing) (*queuedJobs, error) {
	for try := 0; ; try++ {
		behind := p.behind(st.Consumer)
		page, err := p.queuedJobs(rc, st.Channel, st.Consumer)
		if err != nil || len(page.jobs) > 0 || rc.QueryArgs().Has("after") {
			return page, err
		}
		left := p.whyEmpty(request.Of(rc), st.Consumer)
		page.why = left.why
		if left.why != "" || left.due <= 0 && !behind {
			return page, nil
		}
		if try >= mostVain || !behind && try > 0 {
			page.why = whyLoading
			return page, nil
		}
		time.Sleep(fanoutPause)
	}
}

func (p *Puller) queuedJobs(rc *fasthttp.RequestCtx, ch *catalogue.Channel, k *durable.Consumer) (*queuedJobs, error) {
	ctx, cancel := context.WithTimeout(request.Of(rc), intake.AnswerWithin)
	defer cancel()
	if err := eachOnce(rc.QueryArgs(), "limit", "size", "after"); err != nil {
		return nil, err
	}
	limit, err := parseLimit(rc.QueryArgs())
	if err != nil {
		return nil, err
	}
	text, replayed := bytes.CutPrefix(rc.QueryArgs().Peek("after"), []byte(replayMark))
	after, err := parseCursor(text)
	if err != nil {
		return nil, err
	}
	page := &queuedJobs{k: k}
	mark := ""
	if !replayed {
		if after, err = p.listJobs(ctx, k, after, limit, page); err != nil {
			return nil, err
		}
		replayed = after == nil
	}
	if g := p.catalogue.ReplayOf(k.No); replayed && g != nil && limit > len(page.jobs) {
		mark = replayMark
		if after, err = p.listJobs(ctx, g, after, limit, page); err != nil {
			return nil, err
		}
	}
	if limit > 0 && after != nil {
		page.next = "/channel/" + ch.ID + "/consumer/" + k.ID + "/queued-jobs?limit=" + strconv.Itoa(limit) +
			"&after=" + url.QueryEscape(mark+formatCursor(*after))
	}
	return page, nil
}

// listJobs adds jobs of a generation behind the cursor to the page. It returns the cursor of the next
// page, nil where this one has the last of them.
func (p *Puller) listJobs(ctx context.Context, k *durable.Consumer, after *redisq.Cursor, limit int,
	page *queuedJobs) (*redisq.Cursor, error) {
	// A page may contain jobs that are over, because their acknowledgement was lost. The loop
	// acknowledges them and continues behind them, so that the list is not short. The number of
	// rounds is bounded.
	for round := 0; limit > len(page.jobs) && round < 4; round++ {
		want := p.fits.Of(k.No, limit-len(page.jobs))
		waiting, err := p.queue.Peek(ctx, k.No, after, want)
		if err != nil {
			return nil, err
		}
		shown, err := p.describe(ctx, k, waiting, page)
		if err != nil {
			return nil, err
		}
		if shown > 0 {
			last := waiting[shown-1]
			after = &redisq.Cursor{Score: last.Score, ID: last.ID}
		}
		if shown < len(waiting) { // the page is full
			break
		}
		if len(waiting) < want {
			return nil, nil
		}
	}
	return after, nil
}

// describe adds waiting jobs with their messages to the page. shown is the number of jobs
// processed; it is less than len(waiting) if the page is full.
func (p *Puller) describe(ctx context.Context, k *durable.Consumer, waiting []redisq.Waiting,
	page *queuedJobs) (shown int, err error) {
	incarnation := p.queue.Incarnation()
	cs := verify.Waiting(waiting)
	sizes, err := p.look(ctx, k, cs, incarnation)
	if err != nil {
		return 0, err
	}
	var over []ident.ID
	for i, size := range sizes {
		c := &cs[i]
		if c.Verdict == verify.Deliver && !page.size.add(size) {
			break
		}
		shown++
		if c.Verdict.Ends() {
			over = append(over, c.ID)
		}
		if c.Verdict != verify.Deliver { // no worker gets it now; without its lease no death can be stored
			continue
		}
		if p.traces != nil {
			p.traces.Listed(tracing.Attempt{Consumer: k, Message: c.Message, RedrivenMs: c.State.RedrivenMs})
		}
		attempts := max(waiting[i].Attempts, c.State.Attempts)
		page.jobs = append(page.jobs, queuedJob{w: waiting[i], attempts: attempts, counts: countsOf(&c.State, attempts),
			msg: c.Message, producer: p.producerOf(c.Message), replay: k.Replay})
	}
	if len(over) > 0 {
		_, err = p.queue.Ack(ctx, k.No, over)
	}
	return shown, err
}

// foreign distinguishes a job of another consumer (401) from one that does not exist (404).
func (p *Puller) foreign(ctx context.Context, ch *catalogue.Channel, id ident.ID, pos int) error {
	msg, err := p.head(ctx, ch, id)
	if err != nil {
		return err
	}
	if !ch.HasJobAt(msg.Head(), pos) {
		return errJobNotFound
	}
	return errForeign
}

// head returns the message without its payload. It returns errJobNotFound if the channel has no
// such message.
func (p *Puller) head(ctx context.Context, ch *catalogue.Channel, id ident.ID) (*durable.Message, error) {
	msg, err := p.verifier.Head(ctx, ch.No, id)
	if err == nil && msg == nil {
		err = errJobNotFound
	}
	return msg, err
}
