package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/quantity"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// maxPosted is the largest body that a receiver may post. What is above responseMaxBytes of it is
// cut off.
const maxPosted = 4 << 20

var (
	errWait  = problem.New(fasthttp.StatusBadRequest, "invalid_wait", "wait must be a duration like 30s, or a number of seconds, from 0 to 60s.")
	errUntil = problem.New(fasthttp.StatusBadRequest, "invalid_until", "until must be first, all or quorum:N with N from 1 to 10000.")
	errOff   = problem.New(fasthttp.StatusConflict, "responses_off", "The consumer has responses off, so its response is not kept.")
	errTwo   = problem.New(fasthttp.StatusConflict, "response_exists", "The exchange has a response already, or is over.")
	errWho   = problem.New(fasthttp.StatusBadRequest, "consumer_ambiguous", "Several consumers of the channel have this token: X-Broker-Consumer-ID must name one.")
)

// A responsesQuery is the query of a read of responses.
type responsesQuery struct {
	wait  time.Duration
	until exchange.Until
	first string // the consumer with which the page begins
	place int    // its position; 0: not given
}

func readResponsesQuery(rc *fasthttp.RequestCtx) (q responsesQuery, err error) {
	q.until = exchange.All
	args := rc.QueryArgs()
	for _, name := range []string{"wait", "until", "first"} {
		if len(args.PeekMulti(name)) > 1 {
			return q, problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s occurs more than once.", name)
		}
	}
	if args.Has("wait") {
		if q.wait, err = waitOf(string(args.Peek("wait"))); err != nil {
			return q, err
		}
	}
	if args.Has("until") {
		if q.until, err = exchange.ParseUntil(string(args.Peek("until"))); err != nil {
			return q, errUntil
		}
	}
	q.first = string(args.Peek("first"))
	q.place, _ = strconv.Atoi(string(args.Peek("place")))
	return q, nil
}

// waitOf reads seconds or a duration.
func waitOf(text string) (time.Duration, error) {
	d, err := quantity.Duration(text)
	if n, e := strconv.Atoi(text); e == nil {
		d, err = time.Duration(min(max(n, -1), 3600))*time.Second, nil
	}
	if err != nil || d < 0 || d > exchange.MaxWait {
		return 0, errWait
	}
	return d, nil
}

// getResponses answers with the responses to a message, after the wait that the query asks for.
// Only the producer of the message and management read them.
func (a *API) getResponses(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readResponsesQuery(rc)
	if err != nil {
		return err
	}
	if publisher(rc) == nil && a.forProducer(rc) {
		// Open management needs no token; a request with those of a producer reads as that producer.
		if err := a.admitProducer(ctx, rc); err != nil {
			return err
		}
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.headlineFor(ctx, rc, ch)
	if err != nil {
		return err
	}
	from := 0
	if from = max(q.place, 0); from == 0 && q.first != "" {
		k := a.o.Catalogue.Consumer(ch.ID, q.first)
		if k == nil {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first", "The parameter first names no consumer of the channel.")
		}
		from = k.Position
	}
	if q.wait > 0 {
		st := standing(rc)
		if st == nil {
			of := a.o.Catalogue.StandingIn(request.Of(rc), ch)
			st = &of
		}
		w := exchange.Wish{Key: answer.KeyOf(rc), ChannelNo: ch.No, Head: m.Head(), Until: q.until, Wait: q.wait, Standing: st, Stopping: a.o.Stopping}
		gone, full := a.o.Board.Await(rc.Conn(), w)
		if gone {
			return nil
		}
		if err := st.Check(); err != nil {
			return err
		}
		if full {
			rc.Response.Header.Set("Retry-After", exchange.Crowded)
		}
	}
	return within(rc, func(ctx context.Context) error {
		if now := a.o.Catalogue.ChannelByNo(ch.No); now != nil {
			ch = now
		}
		view, next, err := a.o.Responses.Responses(ctx, ch, m.Head(), from, a.forProducer(rc))
		if err != nil {
			return err
		}
		if next > 0 && next < len(ch.Consumers) {
			view.Pages = &apitype.Pages{Next: messagePath(ch.ID, m.PathID()) + "/responses?first=" + ch.Consumers[next].ID + "&place=" + strconv.Itoa(next)}
		}
		return a.answerResponses(rc, &view, m.ID.Time())
	})
}

// answerResponses answers with responses, whose bodies are held once.
func (a *API) answerResponses(rc *fasthttp.RequestCtx, view *apitype.Responses, at time.Time) error {
	n := 0
	bodies := make([]payload, len(view.Result))
	for i := range view.Result {
		r := &view.Result[i]
		n += len(r.Body)
		bodies[i] = payload{member: &r.Body, bytes: answer.BytesOf(r.Body)}
	}
	held, err := answer.Open(a.o.Answers, answer.KeyOf(rc), n)
	if err != nil {
		return err
	}
	defer held.Drop()
	return answerApart(rc, held, view, at, false, bodies...)
}

// headlineFor returns the message that the path names, without payload. A producer sees its own
// messages only.
func (a *API) headlineFor(ctx context.Context, rc *fasthttp.RequestCtx, ch *catalogue.Channel) (*durable.Message, error) {
	id, err := a.locate(ctx, ch, param(rc, "message"), a.namer(rc))
	if err != nil {
		return nil, err
	}
	m, err := a.headline(ctx, ch, id)
	if err != nil {
		return nil, err
	}
	if p := publisher(rc); p != nil && m.ProducerNo != p.No {
		return nil, errUnknownMessage
	}
	return m, nil
}

// admitReceiver checks the tokens of a consumer that the path does not name: X-Broker-Consumer-ID
// does, or its token alone where no other consumer of the channel has the same.
func (a *API) admitReceiver(ctx context.Context, rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	id := string(h.Peek(headerConsumerID))
	channelToken, token, err := credentials.Both(h, headerConsumerToken)
	if err != nil {
		return err
	}
	if len(token) == 0 {
		return errTokenMissing
	}
	if id == "" {
		if err := a.fresh(ctx); err != nil {
			return err
		}
		ch := a.o.Catalogue.Channel(param(rc, "channel"))
		if ch == nil {
			return catalogue.ErrUnknownChannel
		}
		if !apitoken.Is(channelToken) && !a.o.Catalogue.ChannelTokenMatches(channelToken, ch) {
			return catalogue.ErrChannelToken
		}
		for _, k := range ch.Consumers {
			switch {
			case k.Deleted() || !a.o.Catalogue.ConsumerTokenMatches(token, ch, k):
			case id != "":
				return errWho
			default:
				id = k.ID
			}
		}
		if id == "" {
			return catalogue.ErrConsumerToken
		}
	}
	st, err := a.o.Catalogue.AdmitConsumer(request.Of(rc), param(rc, "channel"), channelToken, id, token)
	if err == nil {
		answer.SetKey(rc, share.Consumer(st.Consumer.No))
		rc.SetUserValue(standingKey, &st)
	}
	return err
}

// postResponse stores the response that a receiver posts.
func (a *API) postResponse(ctx context.Context, rc *fasthttp.RequestCtx) error {
	k := standing(rc).Consumer
	ch := a.o.Catalogue.ChannelByNo(k.ChannelNo)
	p := a.o.Policies.Of(k.Policy)
	if ch == nil || p.Responses == policy.ResponsesOff || ident.Reserved(ch.ID) {
		return errOff
	}
	id, err := a.locate(ctx, ch, param(rc, "message"), a.namer(rc))
	if err != nil {
		return err
	}
	m, err := a.headline(ctx, ch, id)
	if err != nil {
		return err
	}
	if !k.Concerns(m.Head()) {
		return errUnknownMessage
	}
	d := exchange.Delivery{Consumer: k, Policy: p, ID: m.ID, MessageID: m.PathID(), Producer: m.ProducerNo != 0, AtMs: a.o.NowMs()}
	e := d.Responded(rc.PostBody(), rc.Request.Header.All())
	if err := a.o.Store.PostExchange(ctx, *e); err != nil {
		if errors.Is(err, durable.ErrDuplicate) {
			return errTwo
		}
		return err
	}
	if a.o.Answered != nil {
		a.o.Answered(k.No, m.ID)
	}
	return accepted(rc)
}
