//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Lines of the journals of consumers: "D" is an arrival, "O" what is said about
// it: on disk before it is said.
//
//	D arrival consumer seq hash attempt job message broker asked time
//	O arrival status time
//
// asked is when a pull worker asked for the job, from which on its lease may count;
// of a push it is the time of arrival.
// A pull worker writes status reporting before it reports DELIVERED, and the
// broker's answer afterwards; status givingBack before it gives the job back.
const (
	reporting  = 1
	givingBack = 2
)

// A sinks is every push endpoint, /0, /1, ... by the consumer's number.
type sinks struct {
	plan     *plan
	log      *journal
	arrivals atomic.Int64

	mu    sync.Mutex
	polls map[int64]int // of results that were not there yet, by sequence
}

// run serves until ctx ends.
func (s *sinks) run(ctx context.Context) error {
	ln, err := net.Listen("tcp", s.plan.Sinks)
	if err != nil {
		return err
	}
	server := &fasthttp.Server{Handler: s.handle, NoDefaultServerHeader: true, MaxRequestBodySize: 1 << 20}
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.ShutdownWithContext(late) // connections that still hang are cut
	})
	defer stop()
	return server.Serve(ln)
}

func (s *sinks) handle(rc *fasthttp.RequestCtx) {
	if s.serveMore(rc) {
		return
	}
	k, err := strconv.Atoi(strings.TrimPrefix(string(rc.Path()), "/"))
	if err != nil || k < 0 || k >= len(s.plan.Consumers) {
		rc.SetStatusCode(fasthttp.StatusNotFound) // a followed redirect ends here: a failed attempt
		return
	}
	h := &rc.Request.Header
	body := rc.PostBody()
	seq, ok := parseSeq(body)
	if !ok {
		seq = -1
	}
	if replay := h.Peek("X-Broker-Replay"); len(replay) > 0 {
		s.copied(rc, replay, seq)
		return
	}
	arrival, now := s.arrivals.Add(1), time.Now()
	s.log.Add("D", arrival, k, seq, hashOf(body), string(h.Peek("X-Broker-Attempt")), string(h.Peek("X-Broker-Job-ID")),
		orDash(string(h.Peek("X-Broker-Message-ID"))), orDash(string(h.UserAgent())), now, now)
	if does := s.plan.Consumers[k].Does; does.responds() {
		s.respond(rc, does, arrival, seq)
	} else {
		s.answer(rc, does, arrival)
	}
}

// say flushes the answer to disk before it sends it.
func (s *sinks) say(rc *fasthttp.RequestCtx, arrival int64, status int) {
	if s.log.Add("O", arrival, status, time.Now()).Wait() != nil {
		status = fasthttp.StatusInsufficientStorage
	}
	rc.SetStatusCode(status)
}

func (s *sinks) answer(rc *fasthttp.RequestCtx, does behaviour, arrival int64) {
	n := rand.IntN(1000)
	switch {
	case does == flaky && n < 30:
		s.say(rc, arrival, 500)
	case does == flaky && n < 34: // closed without an answer
		rc.HijackSetNoResponse(true)
		rc.Hijack(func(net.Conn) {})
	case does == flaky && n < 37:
		s.say(rc, arrival, 307)
		rc.Response.Header.Set("Location", "/redirected")
	case does == flaky && n < 39:
		s.say(rc, arrival, 200)
		rc.Response.SetBodyRaw(make([]byte, 1<<20))
	case does == limited && n < 20:
		s.say(rc, arrival, 429)
		rc.Response.Header.Set("Retry-After", retryAfters[rand.IntN(len(retryAfters))])
	case does == limited && n < 25:
		s.say(rc, arrival, 503)
	case does == hanging && n < 4:
		time.Sleep(deliveryTimeout + time.Second)
		s.say(rc, arrival, 503)
	case does == hanging && n < 6: // a success after the broker's time-out
		time.Sleep(deliveryTimeout + time.Second)
		s.say(rc, arrival, 204)
	case does == hanging && n < 20:
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		s.say(rc, arrival, 204)
	default:
		s.say(rc, arrival, 204)
	}
}

// retryAfters are good and bad values of the header.
var retryAfters = []string{"1", "0", "-5", "soon", "999999999999", time.Unix(0, 0).UTC().Format(time.RFC1123),
	fmt.Sprint(1 << 62)}
