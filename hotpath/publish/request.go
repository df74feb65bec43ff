package publish

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// requestWait is how long a request waits that does not say.
const requestWait = 10 * time.Second

var (
	errPrefer = problem.Newf(400, "invalid_prefer", "Prefer must be wait=N with whole seconds from 0 to %d; "+
		"nothing was stored.", int(exchange.MaxWait.Seconds()))
	errNobody = problem.New(409, "no_responder", "No consumer of the channel has responses on, so no response "+
		"would come; nothing was stored.")
	errOneRequest = problem.New(400, "invalid_request", "A request is one message of now: it takes no batch, no "+
		scheduledHeader+", no "+delayHeader+" and no "+recurrenceHeader+"; nothing was stored.")
)

// Request is POST /channel/{channel}/request: a publish that waits for the first response. The
// message is as durable as any other, whatever becomes of the wait.
func (p *Publisher) Request(rc *fasthttp.RequestCtx) {
	if err := p.request(request.Of(rc), rc); err != nil {
		problem.Write(rc, err)
	}
}

func (p *Publisher) request(ctx context.Context, rc *fasthttp.RequestCtx) error {
	h := &rc.Request.Header
	channelID, _ := rc.UserValue("channel").(string)
	from, err := p.sender(ctx, rc, channelID)
	if err != nil {
		return err
	}
	wait, err := preferredWait(h)
	if err != nil {
		return err
	}
	if from.ch, err = p.responding(ctx, from.ch); err != nil {
		return err
	}
	if err := p.takes(ctx, from.ch); err != nil {
		return err
	}
	mode, err := eventMode(h)
	if err != nil {
		return err
	}
	w := p.drafter(from)
	d := w.draft()
	defer d.free()
	if mode != cloudevents.Batch {
		err = d.describe(h, mode, ofMessage)
	}
	if mode == cloudevents.Batch || err == nil && d.times != times0 {
		return errOneRequest
	}
	if err == nil {
		err = w.complete(ctx, d)
	}
	if err != nil {
		return err
	}
	w.store(ctx, rc, mode, d)
	if err := p.answer(rc, w.ch, d); err != nil || d.journalled { // its responses are found when it is stored
		return err
	}
	msg := d.msg
	if d.err != nil {
		stored, _ := repeated(msg, w.ch.Intake, d.err)
		msg = &stored
	}
	return p.awaitResponse(ctx, rc, w.sender, msg, wait)
}

// responding refuses a channel without a consumer that has responses on.
func (p *Publisher) responding(ctx context.Context, ch *catalogue.Channel) (*catalogue.Channel, error) {
	if len(exchange.Responders(ch, p.replies.Reader.Policies)) > 0 {
		return ch, nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	if err := p.catalogue.Refresh(ctx); err != nil { // another broker may have changed a consumer
		return nil, err
	}
	if now := p.catalogue.ChannelByNo(ch.No); now != nil && len(exchange.Responders(now, p.replies.Reader.Policies)) > 0 {
		return now, nil
	}
	return nil, errNobody
}

// preferredWait reads Prefer: wait=N. Other preferences are ignored (RFC 7240).
func preferredWait(h *fasthttp.RequestHeader) (time.Duration, error) {
	for _, line := range h.PeekAll("Prefer") {
		for part := range strings.SplitSeq(string(line), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			value, _, _ = strings.Cut(value, ";")
			n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
			if err != nil || n < 0 {
				return 0, errPrefer
			}
			return min(time.Duration(min(n, 3600))*time.Second, exchange.MaxWait), nil
		}
	}
	return requestWait, nil
}

// awaitResponse answers with the first response, or with the place where the responses will be.
// A producer whose tokens were changed meanwhile gets no response: the message is stored, so it is told
// the place, where a request with its new tokens reads them.
func (p *Publisher) awaitResponse(ctx context.Context, rc *fasthttp.RequestCtx, from sender, msg *durable.Message,
	wait time.Duration) error {
	ch := from.ch
	head := msg.Head()
	head.Audience = max(head.Audience, len(ch.Consumers)) // of a repeat it is not known; no exchange is above it
	rc.Response.Header.SetBytesV("Location", append(appendMessageURL(nil, ch.ID, msg), "/responses"...))
	rc.Response.Header.Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	rc.SetStatusCode(fasthttp.StatusAccepted)
	asked := exchange.Asked(ch, p.replies.Reader.Policies, head)
	if wait > 0 {
		w := exchange.Wish{Key: share.Producer(msg.ProducerNo), ChannelNo: ch.No, Head: head, Until: exchange.First,
			Wait: wait, Standing: &from.standing, Stopping: p.replies.Stopping}
		gone, full := p.replies.Board.Await(rc.Conn(), w)
		if gone {
			return nil
		}
		if full { // the message is stored: where its responses will be is answered
			rc.Response.Header.Set("Preference-Applied", "wait=0")
			rc.Response.Header.Set("Retry-After", exchange.Crowded)
		}
	}
	if from.check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	ch = from.ch
	k, e, err := p.replies.Reader.First(ctx, ch, head)
	if err != nil {
		return nil
	}
	if e == nil {
		return p.failed(ctx, ch, head, asked)
	}
	held, err := answer.Open(p.answers, share.Producer(msg.ProducerNo), len(e.Body))
	if err != nil { // too many of its answers are unread: it reads this one later
		return nil
	}
	rc.SetStatusCode(fasthttp.StatusOK)
	out := &rc.Response.Header
	out.SetNoDefaultContentType(true)
	for name, value := range metadata.Headers(e.Headers) {
		if name == "Content-Type" || name == coding.Header || coding.Describes(name) != "" {
			out.Set(name, value)
		}
	}
	out.Set(exchange.ConsumerID, k.ID)
	out.Set(exchange.ResponseStatus, strconv.Itoa(e.Status))
	if e.Truncated {
		out.Set(exchange.ResponseCut, "true")
	}
	held.Send(rc, answer.Text{B: e.Body})
	return nil
}

// failed returns why a message that is stored will have no response, nil while one may come. asked are
// the consumers that were to respond when the wait began.
func (p *Publisher) failed(ctx context.Context, ch *catalogue.Channel, head durable.Head, asked []string) error {
	f, err := p.replies.Reader.Failed(ctx, ch, head)
	switch {
	case err == nil && len(asked) > 0 && len(exchange.Asked(ch, p.replies.Reader.Policies, head)) == 0:
		return problem.Newf(502, "response_failed", "The message is stored, and there will be no response: %s, deleted or "+
			"with responses turned off since. Location has the exchanges.", exchange.Named(asked))
	case err != nil || f == nil: // it may be known later
		return nil
	case f.Late:
		return problem.Newf(504, "response_late", "The message is stored, and no consumer has responded in time: %s. "+
			"Location has the exchanges.", f.Reason)
	}
	return problem.Newf(502, "response_failed", "The message is stored, and there will be no response: %s. Location "+
		"has the exchanges.", f.Reason)
}

// Replies are what a request waits with.
type Replies struct {
	Board    *exchange.Board
	Reader   *exchange.Reader
	Stopping <-chan struct{} // closed when the broker stops
}
