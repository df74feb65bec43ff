//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The consumers of answersChannel respond to each message: one at once, and one later, at a result
// that is polled. The brokers carry the responses to the producer, whose replyUrl is an endpoint of
// the sinks. The response to a message is made of its sequence number, so that each process knows it.
const (
	answersChannel = "chaos-answers"
	answeringID    = "answering"
	laterID        = "later"

	replyPath  = "/reply"
	resultPath = "/result/"
	// redriveReplies is the interval at which the drain redrives dead replies.
	redriveReplies = 5 * time.Second
)

// answerTo is the response of a consumer to a message.
func answerTo(consumer string, seq int64) []byte {
	return fmt.Appendf(nil, "%0*x %s", seqBytes, seq, consumer)
}

// respond answers a delivery to a consumer that responds.
func (s *sinks) respond(rc *fasthttp.RequestCtx, does behaviour, arrival, seq int64) {
	switch n := rand.IntN(1000); {
	case n < 30:
		s.say(rc, arrival, 500)
	case does == responding:
		s.say(rc, arrival, 200)
		rc.SetContentType("text/plain")
		rc.SetBody(answerTo(answeringID, seq))
	default:
		s.say(rc, arrival, 202)
		rc.Response.Header.Set("Location", resultPath+strconv.FormatInt(seq, 10))
	}
}

// result answers a poll. Of some messages the first polls find no result: the waits between polls
// grow to a minute, so that more of them would make the drain long.
func (s *sinks) result(rc *fasthttp.RequestCtx, seq string) {
	no, err := strconv.ParseInt(seq, 10, 64)
	if err != nil {
		rc.SetStatusCode(fasthttp.StatusNotFound)
		return
	}
	s.mu.Lock()
	polls := s.polls[no]
	early := int64(polls) < no%4-1 // none, none, one, two
	if delete(s.polls, no); early {
		s.polls[no] = polls + 1
	}
	s.mu.Unlock()
	switch {
	case early && no%8 == 2:
		rc.SetStatusCode(fasthttp.StatusInternalServerError)
	case early:
		rc.SetStatusCode(fasthttp.StatusAccepted)
	default:
		rc.SetContentType("text/plain")
		rc.SetBody(answerTo(laterID, no))
	}
}

// reply is the endpoint of the producer. Its journal has, on disk before the answer,
//
//	R seq consumer hash message status time
func (s *sinks) reply(rc *fasthttp.RequestCtx) {
	h, body := &rc.Request.Header, rc.PostBody()
	seq, ok := parseSeq(body)
	if !ok {
		seq = -1
	}
	status := fasthttp.StatusNoContent
	if rand.IntN(100) < 3 {
		status = fasthttp.StatusInternalServerError
	}
	if s.log.Add("R", seq, orDash(string(h.Peek("X-Broker-Consumer-ID"))), hashOf(body),
		orDash(string(h.Peek("X-Broker-In-Reply-To"))), status, time.Now()).Wait() != nil {
		status = fasthttp.StatusInsufficientStorage
	}
	rc.SetStatusCode(status)
}

// A Reply is a response that has come back to the producer.
type Reply struct {
	Seq      int64
	Consumer string
	Hash     string
	Message  string // public ID of the message that it responds to
	Taken    bool   // the producer was about to answer with success
	At       time.Time
}

// An Exchange is a row of the table of exchanges.
type Exchange struct {
	State durable.ExchangeState
	Body  string // its hash
}

func readExchanges(ctx context.Context, tx *sql.Tx, e *Evidence, from string, k int, no int64) error {
	query := "SELECT message_id, state, LEFT(SHA2(body, 256), 16) FROM " + from + ".exchanges WHERE consumer_no = ?"
	return readRows(ctx, tx, query, no, func(rows *sql.Rows) error {
		var id []byte
		var x Exchange
		err := rows.Scan(&id, &x.State, &x.Body)
		e.Exchanges[exchangeKey{k, idOf(id)}] = x
		return err
	})
}

// An exchangeKey names an exchange, by the consumer's number in the plan.
type exchangeKey struct {
	consumer int
	id       ident.ID
}

// redriveReplies redrives the replies that are dead.
func (r *rig) redriveReplies(ctx context.Context) {
	_, _ = send(ctx, http.MethodPost, "http://"+r.nodes[0].addr+"/producer/"+r.plan.Producer+"/dlq",
		url.Values{"requeue": {r.plan.Token}})
}

// responds reports whether a consumer responds to its messages.
func (b behaviour) responds() bool { return b == responding || b == later }

// answers checks that each message which a consumer took has its response, and that the producer has
// it: once, but for what was under way at a fault.
func (c *checker) answers() {
	replies := map[string]int{} // taken ones, by consumer and sequence
	for i := range c.e.Replies {
		p := &c.e.Replies[i]
		sent := c.e.Sent[p.Seq]
		k := c.e.Plan.numbered(p.Consumer)
		switch {
		case sent == nil || k < 0 || !c.e.Plan.Consumers[k].Does.responds():
			c.v.broken("phantoms", "a reply of %s to message %d, which asked for none", p.Consumer, p.Seq)
			continue
		case p.Hash != hashOf(answerTo(p.Consumer, p.Seq)):
			c.v.broken("corrupted", "the reply of %s to message %d", p.Consumer, p.Seq)
		}
		if rows := c.rows[p.Seq]; len(rows) == 1 && p.Message != sent.publicID(rows[0]) {
			c.v.broken("corrupted", "the reply of %s to message %d names %s, not %s", p.Consumer, p.Seq, p.Message,
				sent.publicID(rows[0]))
		}
		if p.Taken {
			replies[p.Consumer+" "+strconv.FormatInt(p.Seq, 10)]++
		}
	}
	for i := range c.e.Stored {
		s := &c.e.Stored[i]
		for k, consumer := range c.e.Plan.Consumers {
			if consumer.Channel == s.Channel && consumer.Does.responds() {
				c.exchange(s, k, replies[consumer.ID+" "+strconv.FormatInt(s.Seq, 10)])
			}
		}
	}
}

// exchange checks one exchange, whose reply the producer has taken so many times.
func (c *checker) exchange(s *Stored, k, taken int) {
	id, o := c.name(k), &c.e.Jobs[k]
	x, stored := c.e.Exchanges[exchangeKey{k, s.ID}]
	switch {
	case o.Dead[s.ID] && !stored || !o.Delivered[s.ID] && !stored:
		return // no success, no response
	case !stored:
		c.v.broken("lost", "the response of %s to message %d (%s), which it took", id, s.Seq, s.ID)
	case x.State == durable.ExchangeFailed && o.Dead[s.ID]:
	case x.State != durable.ResponseDelivered:
		c.v.broken("stuck", "the exchange of %s about message %d (%s) is %s", id, s.Seq, s.ID, x.State)
	case x.Body != hashOf(answerTo(id, s.Seq)):
		c.v.broken("corrupted", "the stored response of %s to message %d (%s)", id, s.Seq, s.ID)
	case taken == 0:
		c.v.broken("lost", "the response of %s to message %d (%s) counts as delivered, and the producer never took it", id,
			s.Seq, s.ID)
	default:
		c.v.Answered++
		c.v.AnsweredAgain += int64(taken - 1)
	}
}

// serveMore serves what is no push endpoint, and reports whether it was that.
func (s *sinks) serveMore(rc *fasthttp.RequestCtx) bool {
	path := string(rc.Path())
	seq, polled := strings.CutPrefix(path, resultPath)
	switch {
	case path == replyPath:
		s.reply(rc)
	case polled:
		s.result(rc, seq)
	default:
		return false
	}
	return true
}
