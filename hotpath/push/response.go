package push

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/exchange"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/policy"
)

// responseBytes bounds the responses in memory, from the request until they are stored.
const responseBytes = 128 << 20

// A Keeper is a Target that can keep a part of the answer.
type Keeper interface {
	PostKeeping(req *fasthttp.Request, timeout time.Duration, keep *egress.Keep) egress.Result
}

var errResponseRoom = errors.New("too many responses wait for the store")

// responds reports whether the consumer's answers are kept. Those to messages of the broker's own
// channels are not: a reply makes no reply.
func (v *delivery) responds(p *policy.Policy) bool {
	if p.Responses == policy.ResponsesOff {
		return false
	}
	ch := v.d.catalogue.ChannelByNo(v.consumer.ChannelNo)
	return ch != nil && !ident.Reserved(ch.ID)
}

// send makes the request, and keeps the response where the consumer has responses on.
func (v *delivery) send(target Target, req *fasthttp.Request, p *policy.Policy, deadline time.Time) egress.Result {
	keeper, ok := target.(Keeper)
	if !ok || !v.responds(p) {
		return target.Post(req, time.Until(deadline))
	}
	// Room is taken before the request is sent: an answer that came must not be refused.
	if v.kept == 0 {
		if !v.d.responses.Take(int64(p.ResponseMaxBytes)) {
			return egress.Result{Err: errResponseRoom, RetryAfter: -1, Local: true}
		}
		v.kept = int64(p.ResponseMaxBytes)
	}
	return keeper.PostKeeping(req, time.Until(deadline), &egress.Keep{Bytes: p.ResponseMaxBytes, Headers: p.ResponseHeaders.Keeps})
}

// dropKept gives back the room of a response that is stored, or given up.
func (v *delivery) dropKept() {
	if v.kept != 0 {
		v.d.responses.Give(v.kept)
		v.kept = 0
	}
}

// answered adds to the outcome of a delivery what its answer means for the exchange of the message.
func (v *delivery) answered(out *durable.Outcome, res *egress.Result, p *policy.Policy) {
	if v.responds(p) {
		d := exchange.Delivery{
			Consumer: v.consumer, Policy: p, ID: v.msg.ID, PublicID: v.msg.PublicID(), Producer: v.msg.ProducerNo != 0,
			Attempt: out.Attempts, Status: res.Status, AtMs: out.AtMs,
		}
		out.Exchange = d.Answered(res)
		if over := v.kept - int64(len(out.Exchange.Body)); v.kept > 0 && over > 0 {
			v.d.responses.Give(over)
			v.kept -= over
		}
	}
	if v.replies() {
		out.ReplyTo = exchange.ParseReplyID(v.msg.Key)
	}
}

// replies reports whether the message is the reply to a producer.
func (v *delivery) replies() bool {
	if v.msg.ProducerNo != 0 {
		return false
	}
	ch := v.d.catalogue.ChannelByNo(v.msg.ChannelNo)
	return ch != nil && ident.RepliesTo(ch.ID) != 0
}

// describeReply sets the headers of a reply: those that the broker stored with it, which name the
// consumer that responded instead of the one of the channel of replies.
func (v *delivery) describeReply(h *fasthttp.RequestHeader) {
	if !v.replies() {
		return
	}
	for name, value := range metadata.Headers(v.msg.Headers) {
		if exchange.ReplyHeader(name) {
			h.Set(name, value)
		}
	}
}
