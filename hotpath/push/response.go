package push

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

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

// request makes the request, and keeps the response where the consumer has responses on.
func (v *delivery) request(t *posting, req *fasthttp.Request, p *policy.Policy, deadline time.Time) egress.Result {
	if t.keeper == nil || !v.responds(p) {
		return t.Post(req, time.Until(deadline))
	}
	// A part of the room is taken before the request is sent. An answer that came is kept, and never
	// fails the attempt for lack of room.
	if v.kept == nil {
		if v.kept = v.d.settings.Room.Begin(v.consumer, v.lane.responses.Load(), p.ResponseMaxBytes); v.kept == nil {
			return Unsent(errResponseRoom)
		}
	}
	keep := &egress.Keep{Bytes: p.ResponseMaxBytes, Headers: p.ResponseHeaders.Keeps}
	v.kept.For(keep, deadline)
	res := t.keeper.PostKeeping(req, time.Until(deadline), keep)
	if keep.Cut() {
		v.d.log.Info("a response was cut off: the responses of its consumer take more memory than its part",
			v.about("bytes", len(res.Response.Body))...)
	}
	return res
}

// dropKept gives back the room of a response that is stored, or given up.
func (v *delivery) dropKept() {
	if v.kept != nil {
		v.kept.Close()
		v.kept = nil
	}
}

// answered adds to the outcome of a delivery what its answer means for the exchange of the message.
func (v *delivery) answered(out *durable.Outcome, res *egress.Result, p *policy.Policy) {
	if v.responds(p) {
		d := exchange.Delivery{
			Consumer: v.consumer, Policy: p, ID: v.msg.ID, MessageID: v.msg.PathID(), Producer: v.msg.ProducerNo != 0,
			Attempt: out.Attempts, Status: res.Status, AtMs: out.AtMs,
		}
		out.Exchange = d.Answered(res)
		if v.kept != nil {
			v.kept.Keep(cap(out.Exchange.Body))
			v.lane.responses.Store(exchange.Usual(v.lane.responses.Load(), len(out.Exchange.Body)))
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
