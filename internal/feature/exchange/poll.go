package exchange

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// maxPoll bounds one poll.
const maxPoll = 30 * time.Second

// Results that are not there yet are due again at times that are multiples of this, so that one
// statement delays many of them. A time is only ever moved to a later one.
const pollGrain = 250 * time.Millisecond

// delay makes results due at a time, without a poll.
func (w *Worker) delay(ctx context.Context, k *durable.Consumer, due []durable.Work, atMs int64, tries int) error {
	ids := make([]ident.ID, len(due))
	for i, d := range due {
		ids[i] = d.ID
	}
	return w.Store.DelayWork(ctx, k.No, durable.DeliveredReceiver, ids, atMs, tries)
}

// one asks for one result, inside the rate of the consumer. asking ends under pressure.
func (r *pollRun) one(ctx, asking context.Context, d durable.Work) error {
	if d.URL == "" { // the receiver posts it
		return r.delay(ctx, r.k, []durable.Work{d}, d.DeadlineMs, 0)
	}
	r.mu.Lock()
	wait := r.rated
	r.mu.Unlock()
	if wait == 0 && r.limits.Rated() {
		var err error
		if _, wait, err = r.Charge(ctx, r.k.No, redisq.Lease{}, r.limits); err != nil {
			return err // Redis counts the rate: without it there is no poll
		}
	}
	if wait > 0 {
		r.mu.Lock()
		r.rated = wait
		r.mu.Unlock()
		return r.delay(ctx, r.k, []durable.Work{d}, min(r.NowMs()+wait.Milliseconds(), d.DeadlineMs), 0)
	}
	taken := r.Room.Begin(r.k, r.usual.Load(), r.p.ResponseMaxBytes)
	if taken == nil {
		return r.delay(ctx, r.k, []durable.Work{d}, min(r.NowMs()+roomAgain.Milliseconds(), d.DeadlineMs), 0)
	}
	defer taken.Close()
	res, status, retryAfter := r.ask(asking, d, taken)
	if status/100 != 2 || r.p.AsyncStatus.Has(status) || res == nil {
		found := "nothing yet"
		if status == 0 || status/100 > 3 {
			found = "failure"
		}
		r.polls.WithLabelValues(found).Inc()
		r.again(d, retryAfter)
		return nil
	}
	failpoint.At(failpoint.AfterResult)
	r.polls.WithLabelValues("result").Inc()
	taken.Keep(cap(res.Body))
	r.usual.Store(Usual(r.usual.Load(), len(res.Body)))
	return r.store(ctx, d, status, res)
}

// again makes a result due after the backoff, and never earlier than the receiver asks for.
func (r *pollRun) again(d durable.Work, retryAfter time.Duration) {
	wait := firstPoll << min(d.Tries+1, 10)
	wait = min(wait, lastPoll)
	wait = max(wait+time.Duration(rand.Int64N(int64(wait)/10+1)), retryAfter)
	grain := pollGrain.Milliseconds()
	at := (r.NowMs() + wait.Milliseconds() + grain - 1) / grain * grain
	at = min(at, d.DeadlineMs)
	r.mu.Lock()
	r.later[at] = append(r.later[at], d.ID)
	r.mu.Unlock()
}

// store moves an exchange on with its result. A crash before it repeats the poll.
func (r *pollRun) store(ctx context.Context, d durable.Work, status int, res *egress.Response) error {
	found, err := r.Store.Exchanges(ctx, r.k.No, []ident.ID{d.ID})
	if err != nil || len(found) == 0 {
		return err
	}
	e := found[0]
	e.Status, e.Headers, e.Body, e.Truncated = status, res.Headers, res.Body, res.Truncated
	e.Answered(r.NowMs())
	moved, err := r.Store.MoveExchange(ctx, e, durable.DeliveredReceiver)
	if moved {
		r.Answered(r.k.No, d.ID)
		r.Stored(r.k.No)
	}
	return err
}

// ask sends one GET. A status of 0 means that no whole answer came, or that it found no room.
func (r *pollRun) ask(ctx context.Context, d durable.Work, taken *Taken) (res *egress.Response, status int,
	retryAfter time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(r.p.Timeout, maxPoll))
	defer cancel()
	req, err := http.NewRequestWithContext(egress.For(ctx, share.Consumer(r.k.No)), http.MethodGet, d.URL, http.NoBody)
	if err != nil {
		return nil, 0, 0
	}
	job := d.ID.Job(r.k.Position).String()
	minimal := r.p.Identity == policy.DiscloseLeast
	web, trusted := r.Fetch, r.trusted(d.URL)
	if trusted {
		web = r.Web
		id := job
		if minimal {
			id = d.ID.String() // the webhook-id of the delivery, where the producer gave the message none
		}
		r.p.Prove(req.Header.Set, id, nil, time.Now())
	}
	req.Header.Set("User-Agent", r.Agent)
	if !minimal {
		req.Header.Set("X-Broker-Consumer-ID", r.k.ID)
		req.Header.Set("X-Broker-Job-ID", job)
		if trusted {
			req.Header.Set(r.Token, r.k.Token)
		}
	}
	resp, err := web.Do(req)
	if err != nil {
		r.unasked(d, err)
		return nil, 0, 0
	}
	defer resp.Body.Close()
	retryAfter = egress.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now(), 365*24*time.Hour)
	keep := &egress.Keep{Bytes: r.p.ResponseMaxBytes, Headers: r.p.ResponseHeaders.Keeps}
	deadline, _ := ctx.Deadline()
	taken.For(keep, deadline)
	res, err = egress.KeepOf(resp, keep, cancel)
	if err != nil || keep.Cut() { // a later poll finds the result again
		return nil, 0, retryAfter
	}
	return res, resp.StatusCode, retryAfter
}

// trusted reports whether a URL is where management has put the consumer: it has scheme, host and
// port of its callback, or of its result URL. Such a URL gets the credentials of the consumer and
// follows the rule of callbacks. A Location elsewhere gets none, and follows that of users' URLs.
func (r *pollRun) trusted(text string) bool {
	to := egress.Origin(text)
	return to != "" && (to == egress.Origin(r.k.CallbackURL) || to == egress.Origin(r.p.ResultURL.For("m")))
}

// unasked tells the operator, and nobody else, why a result is not asked for. A Location at an
// address that is not allowed is a warning, once a minute.
func (r *pollRun) unasked(d durable.Work, err error) {
	level := slog.LevelDebug
	if now := r.NowMs(); errors.Is(err, egress.ErrForbidden) && now-r.warned.Load() >= time.Minute.Milliseconds() {
		r.warned.Store(now)
		level = slog.LevelWarn
	}
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err // the URL may contain a secret
	}
	r.Log.Log(context.Background(), level, "a result was not asked for", "consumer", r.k.No, "job",
		d.ID.Job(r.k.Position).String(), "error", err)
}
