package sqs

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Store is the part of durable.Store used here.
type Store interface {
	MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error)
	SQSKey(ctx context.Context, id string) (durable.SQSKey, error)
}

// A Plane sends and receives: the data plane.
type Plane interface {
	Sending(ctx context.Context, st catalogue.Standing) (*publish.Drafter, error)
	MaxBody() int
	Receive(rc *fasthttp.RequestCtx, st *catalogue.Standing, w pull.Wish) (pull.Received, error)
	Settle(rc *fasthttp.RequestCtx, st *catalogue.Standing, reports []pull.Report) []error
}

// A Manager reads and changes the resources: the API.
type Manager interface {
	// CreateQueue makes a channel and a pull consumer, where they are missing. made: the consumer is new.
	CreateQueue(ctx context.Context, rc *fasthttp.RequestCtx, q Name, fields map[string]string) (made bool, err error)
	// ChangeQueue sets fields of a consumer.
	ChangeQueue(ctx context.Context, rc *fasthttp.RequestCtx, q Name, fields map[string]string) error
	DeleteQueue(ctx context.Context, rc *fasthttp.RequestCtx, q Name) error
	PurgeQueue(ctx context.Context, rc *fasthttp.RequestCtx, k *durable.Consumer) error
	MayDelete() bool
	// Sender returns the producer of that ID, made where it is missing.
	Sender(ctx context.Context, rc *fasthttp.RequestCtx, id string) (*durable.Producer, error)
	Depth(ctx context.Context, k *durable.Consumer) (Depth, error)
}

// A Name names a queue.
type Name struct{ Channel, Consumer string }

// A Depth is how many messages of a queue are waiting, are with receivers, and are to come later.
type Depth struct{ Waiting, InFlight, Delayed int }

// A Caller is what the API knows of a request.
type Caller struct {
	Open   bool // it needs no credentials: management is open to it
	Manage Manager
}

// Options assemble a Door.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Plane     Plane
	Policies  *policy.Book
	NowMs     func() int64 // the clock of the store
	// TokenHeader is the header of deliveries that is never carried as metadata.
	TokenHeader string
	Bodies      *share.Bound // bytes of all bodies that come
	Answers     *share.Bound // of large answers
	// Elsewhere reports whether a channel is in another store, which has a door of its own; nil: none is.
	Elsewhere  func(ctx context.Context, channelID string) bool
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// A Door answers the requests of SQS clients.
type Door struct {
	o        Options
	body     intake.Limit
	keys     keys
	lookUps  *share.Bound // of keys in the store
	requests *prometheus.CounterVec
}

// SenderID is the producer whose messages those of SQS clients are.
const SenderID = "sqs"

const (
	// mostBody bounds the body of a request: a batch of the largest size, with each byte escaped.
	mostBody = 6*mostMessage + 256<<10
	// mostMessage bounds body and attributes of a message, and of all messages of a batch, as in SQS.
	mostMessage = 1 << 20
	// within bounds the time that a request spends in the stores, beside its wait.
	within = 10 * time.Second
)

// New returns a Door.
func New(o Options) *Door {
	d := &Door{o: o, body: intake.NewLimit(o.Bodies, mostBody),
		lookUps: share.New(share.Options{Name: "sqs_keys", Most: mostLookUps})}
	d.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_sqs_requests_total",
		Help: "Requests of SQS clients, by action and by the code of their answer; OK is success."},
		[]string{"action", "code"})
	if o.Registerer != nil {
		o.Registerer.MustRegister(d.requests)
	}
	return d
}

// A call is one request.
type call struct {
	*Door
	Caller
	ctx    context.Context
	rc     *fasthttp.RequestCtx
	action string
	who    identity
}

// An action answers a call whose input was decoded.
type action struct {
	input func() any
	run   func(c *call, input any) (any, error)
}

// of makes an action of a function with its own type of input.
func of[T any](run func(c *call, in *T) (any, error)) action {
	return action{func() any { return new(T) }, func(c *call, in any) (any, error) { return run(c, in.(*T)) }}
}

// actions are those that are built. Those of SQS that are not are refused by their names.
var actions = map[string]action{
	"CreateQueue":                  of((*call).createQueue),
	"GetQueueUrl":                  of((*call).getQueueURL),
	"ListQueues":                   of((*call).listQueues),
	"GetQueueAttributes":           of((*call).getAttributes),
	"SetQueueAttributes":           of((*call).setAttributes),
	"PurgeQueue":                   of((*call).purgeQueue),
	"DeleteQueue":                  of((*call).deleteQueue),
	"SendMessage":                  of((*call).sendMessage),
	"SendMessageBatch":             of((*call).sendBatch),
	"ReceiveMessage":               of((*call).receiveMessage),
	"DeleteMessage":                of((*call).deleteMessage),
	"DeleteMessageBatch":           of((*call).deleteBatch),
	"ChangeMessageVisibility":      of((*call).changeVisibility),
	"ChangeMessageVisibilityBatch": of((*call).changeBatch),
}

var otherActions = map[string]bool{"AddPermission": true, "RemovePermission": true, "TagQueue": true,
	"UntagQueue": true, "ListQueueTags": true, "ListDeadLetterSourceQueues": true, "StartMessageMoveTask": true,
	"CancelMessageMoveTask": true, "ListMessageMoveTasks": true}

// Serve answers a request.
func (d *Door) Serve(rc *fasthttp.RequestCtx, from Caller) {
	p := protocolOf(rc)
	c := &call{Door: d, Caller: from, ctx: request.Of(rc), rc: rc}
	err := c.begin(p)
	var out any
	if err == nil {
		out, err = c.run(p)
	}
	code := "OK"
	switch f := (*Fault)(nil); {
	case err == errGone:
		code = "Gone"
	case err != nil:
		f = faultOf(err)
		f.log(d.o.Log, c.action, requestID(rc))
		code = f.Code
		p.fail(rc, c.action, f)
	default:
		err = p.answer(rc, c, out)
		if r, ok := out.(*received); ok {
			r.made(err == nil)
		}
		if err != nil {
			f = faultOf(err)
			code = f.Code
			p.fail(rc, c.action, f)
		}
	}
	label := c.action
	if _, known := actions[label]; !known {
		label = "other"
	}
	d.requests.WithLabelValues(label, code).Inc()
}

// begin finds out who calls, before the body of the request is read.
func (c *call) begin(p protocol) (err error) {
	if c.who, err = c.admit(); err != nil {
		return err
	}
	c.action, err = p.action(c.rc)
	return err
}

// run loads and decodes the body, and runs the action.
func (c *call) run(p protocol) (any, error) {
	loaded, err := c.body.Load(c.rc, answer.KeyOf(c.rc)) // the client's: the signature covers the body
	defer c.body.Drop(c.rc, loaded)
	if err != nil {
		return nil, err
	}
	body := c.rc.Request.Body()
	if err := c.who.check(c, body); err != nil {
		return nil, err
	}
	if c.action == "" {
		if c.action, err = p.actionIn(body); err != nil {
			return nil, err
		}
	}
	a, known := actions[c.action]
	switch {
	case otherActions[c.action]:
		return nil, unsupported.New("This broker does not support the action %s.", c.action)
	case !known:
		return nil, badAction.New("The action %.64q is not valid for this web service.", c.action)
	}
	in := a.input()
	if err := p.decode(body, in); err != nil {
		return nil, err
	}
	return a.run(c, in)
}

// timed calls f with the time that a request may spend in the stores.
func (c *call) timed(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, within)
	defer cancel()
	return f(ctx)
}

// respond writes the body of an answer, which counts as an answer of its channel where it is large.
func (c *call) respond(mediaType string, body []byte) error {
	held, err := answer.Open(c.o.Answers, c.who.share(c.rc), len(body))
	if err != nil {
		return err
	}
	c.rc.SetStatusCode(fasthttp.StatusOK)
	c.rc.SetContentType(mediaType)
	stamp(c.rc)
	held.Send(c.rc, answer.Text{B: body})
	return nil
}

// stamp sets the headers that each answer has.
func stamp(rc *fasthttp.RequestCtx) {
	rc.Response.Header.Set("x-amzn-RequestId", requestID(rc))
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
}

func requestID(rc *fasthttp.RequestCtx) string {
	return string(rc.Response.Header.Peek(request.HeaderID))
}
