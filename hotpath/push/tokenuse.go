package push

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

const (
	// freshFor is how long a token counts as just renewed.
	freshFor = 5 * time.Second
	// firstRefusal is the first hold of a consumer that refuses a token which was just renewed, and
	// holdsOfRefusal the number of such holds, each twice as long as the one before. A token may take
	// a while until every server of the consumer knows it. After them the refusals count as any other
	// answer, for refusalsCount.
	firstRefusal   = time.Second
	holdsOfRefusal = 4
	refusalsCount  = 10 * time.Minute
	// sourceIdle is how long a source is kept that is not used.
	sourceIdle = time.Hour
)

// A tokenBook has the token sources of a broker, by the names of their seals.
type tokenBook struct {
	mu     sync.Mutex
	all    map[string]*tokenSource
	warned time.Time
}

// A laneToken is the token source of a lane, for one text of its credentials.
type laneToken struct {
	credentials policy.Authorization
	source      *tokenSource
}

// tokens returns the token source of the consumer. Consumers with the same client share it. The lane
// gets another one after the credentials have changed.
func (v *delivery) tokens(credentials policy.Authorization, client policy.OAuth2) *tokenSource {
	if t := v.lane.token.Load(); t != nil && t.credentials == credentials {
		return t.source
	}
	t := &laneToken{credentials, v.d.source(client)}
	v.lane.token.Store(t)
	v.lane.refusals.works(nil) // they were of others
	return t.source
}

// source returns the source of a client. It forgets those that nobody has used for long.
func (d *Dispatcher) source(client policy.OAuth2) *tokenSource {
	seal := newTokenSeal(d.settings.Secret, client)
	b := &d.tokens
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]*tokenSource{}
	}
	for name, s := range b.all {
		if s.idle() > sourceIdle {
			delete(b.all, name)
		}
	}
	s := b.all[seal.name]
	if s == nil {
		s = &tokenSource{seal: seal, shared: d.settings.Tokens, fetch: fetcher(d.settings.Web, client), alone: d.notShared,
			running: &d.deliveries, used: time.Now()}
		b.all[seal.name] = s
	}
	return s
}

// idle returns how long the source has not been used.
func (s *tokenSource) idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.used)
}

// notShared tells, once a minute, that tokens cannot be shared with the other brokers.
func (d *Dispatcher) notShared(err error) {
	b := &d.tokens
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.warned) > time.Minute {
		b.warned = time.Now()
		d.log.Warn("access tokens cannot be shared through Redis; each broker fetches its own meanwhile", "error", err)
	}
}

// withToken calls send with an access token, and once more with a new one where the answer is 401
// and a new one may help. send returns the status of a complete answer, else 0.
func (v *delivery) withToken(client policy.OAuth2, deadline time.Time, send func(authorization string,
	again bool) int) error {
	s := v.tokens(v.d.policy(v.consumer).Authorization, client)
	token, err := s.get(nil, deadline)
	if err != nil {
		return err
	}
	sent := time.Now()
	status := send(token.header, false)
	if status == http.StatusUnauthorized && v.lane.refusals.renews(token) {
		if token, err = s.get(token, deadline); err != nil {
			return err
		}
		sent = time.Now()
		status = send(token.header, true)
	}
	switch status {
	case 0:
	case http.StatusUnauthorized:
		v.refused = sent
	default:
		v.lane.refusals.works(token)
	}
	return nil
}

// postWithToken sends the request with an access token. A consumer that answers 401 gets the
// request once more with a new token, within the same attempt.
func (v *delivery) postWithToken(ctx context.Context, target *posting, req *fasthttp.Request, client policy.OAuth2,
	deadline time.Time) (res egress.Result) {
	begun := time.Now()
	err := v.withToken(client, deadline, func(authorization string, again bool) int {
		req.Header.Set("Authorization", authorization)
		if err := v.inTime(ctx, deadline, again); err != nil {
			res = egress.Result{Err: err, RetryAfter: -1, Local: true}
			return 0
		}
		res = v.request(target, req, v.d.policy(v.consumer), deadline)
		if res.Err != nil {
			return 0
		}
		return res.Status
	})
	if err != nil {
		res = egress.Result{Err: err, RetryAfter: -1, Local: errors.Is(err, errOtherFetches)}
	}
	res.Took = time.Since(begun)
	return res
}

// refusals are what a consumer did with its access tokens.
type refusals struct {
	mu     sync.Mutex
	worked *accessToken // the last one that it took
	holds  int          // since then
	until  time.Time    // of the last one
	count  time.Time    // until then, refusals count as any other answer
}

// works records that the consumer has taken a token.
func (r *refusals) works(t *accessToken) {
	r.mu.Lock()
	r.worked, r.holds, r.until, r.count = t, 0, time.Time{}, time.Time{}
	r.mu.Unlock()
}

// renews reports whether a new token may help after a 401: the refused one has worked, or it was not
// just renewed.
func (r *refusals) renews(t *accessToken) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.worked == t || time.Since(t.since) > freshFor
}

// hold returns how long to hold a consumer that has refused a token which was just renewed, in a
// request that was sent at that time. first reports whether it has not refused one before. ok is false
// where the refusal counts.
func (r *refusals) hold(sent time.Time) (wait time.Duration, first, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case now.Before(r.count):
		return 0, false, false
	case sent.Before(r.until): // several requests were under way
		return max(r.until.Sub(now), 0), false, true
	case r.holds == holdsOfRefusal:
		r.holds, r.count = 0, now.Add(refusalsCount)
		return 0, true, false
	}
	wait = firstRefusal << r.holds
	r.holds++
	r.until = now.Add(wait)
	return wait, r.holds == 1, true
}

// holdRefusing holds a consumer that has refused an access token which was just renewed, and gives
// the job back: the job waits, and its attempt is not charged, but its requests count for the rate.
// It reports false where the attempt counts.
func (d *Dispatcher) holdRefusing(v *delivery, seen *durable.Consumer) bool {
	wait, first, ok := v.lane.refusals.hold(v.refused)
	if !ok {
		if first {
			d.log.Warn("a consumer goes on refusing access tokens that were just renewed; its attempts count again",
				v.about()...)
		}
		return false
	}
	if first {
		d.log.Info("a consumer refuses an access token that was just renewed; it is held",
			v.about("wait", wait.String())...)
	}
	d.metrics.Attempts.WithLabelValues("token_refused").Inc()
	v.dropKept()
	d.hold(v, seen, wait, "answer 401 to a new access token, job "+v.job())
	v.granted = ""
	v.giveBack()
	d.WakeAfter(v.lane.no, max(wait, storePause))
	return true
}
