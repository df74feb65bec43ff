package exchange

import (
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

const (
	// firstPoll is the wait before the first poll of a result, where the receiver asks for no longer
	// one; later waits double up to lastPoll.
	firstPoll, lastPoll = time.Second, time.Minute
	// maxResultURL is the width of the column.
	maxResultURL = 2048
)

// A Delivery is a delivered job of a consumer with responses on.
type Delivery struct {
	Consumer  *durable.Consumer
	Policy    *policy.Policy
	ID        ident.ID
	MessageID string // as the consumer knows the message
	Producer  bool   // the message has one
	Attempt   int
	Status    int
	AtMs      int64
}

// exchange is the row of the delivery, without a response yet. The delivery of a replay has the one
// of the consumer itself: a message has one exchange with a consumer, however often it is delivered.
func (d *Delivery) exchange() *durable.Exchange {
	return &durable.Exchange{
		ConsumerNo: d.Consumer.Account(), ID: d.ID, State: durable.DeliveredReceiver,
		GoesBack: d.Policy.Responses == policy.ResponsesCallback && d.Producer,
		Attempt:  d.Attempt, Status: d.Status, DeliveredMs: d.AtMs, KeepMs: d.Policy.ResponseTTL.Milliseconds(),
		DeadlineMs: d.AtMs + d.Policy.ResultDeadline.Milliseconds(), DueMs: d.AtMs + d.Policy.ResultDeadline.Milliseconds(),
	}
}

// NoResult is the reason of an exchange whose result did not come by its deadline.
const NoResult = "no result came by the deadline"

// noAnswer is the reason of an exchange whose response was lost with its connection.
const noAnswer = "the receiver had processed an earlier attempt, whose answer was lost"

// Answered returns the exchange of a push delivery with that answer.
func (d *Delivery) Answered(res *egress.Result) *durable.Exchange {
	e, r := d.exchange(), res.Response
	switch {
	case d.Policy.Accepted(d.Status):
		e.URL = d.Policy.ResultURL.For(d.MessageID)
		if r != nil && r.Location != "" {
			if to := resolve(d.Consumer.CallbackURL, r.Location); to != "" {
				e.URL = to
			}
		}
		if len(e.URL) > maxResultURL {
			e.URL = ""
		}
		if e.URL != "" {
			e.DueMs = min(e.DueMs, d.AtMs+max(firstPoll, later(r)).Milliseconds())
		}
	case r == nil:
		e.Fail(d.AtMs, noAnswer)
	default:
		e.Headers, e.Body, e.Truncated = r.Headers, r.Body, r.Truncated
		e.Answered(d.AtMs)
	}
	return e
}

// Awaited returns the exchange of a job that a pull consumer reported: it posts the response.
func (d *Delivery) Awaited() *durable.Exchange { return d.exchange() }

// Responded returns the exchange with a response that its receiver posted, or brought along with its
// report. It keeps a copy of what the policy says.
func (d *Delivery) Responded(body []byte, headers iter.Seq2[[]byte, []byte]) *durable.Exchange {
	e, most := d.exchange(), d.Policy.ResponseMaxBytes
	e.Status, e.Truncated = http.StatusOK, len(body) > most
	e.Body = append([]byte{}, body[:min(len(body), most)]...)
	var kept egress.Response
	for name, value := range headers {
		kept.Add(&egress.Keep{Headers: d.Policy.ResponseHeaders.Keeps}, string(name), string(value))
	}
	e.Headers = kept.Headers
	e.Answered(d.AtMs)
	return e
}

// resolve returns an absolute URL for a Location, "" where it is none that can be asked.
func resolve(base, location string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ""
	}
	to, err := b.Parse(location)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "" || to.User != nil {
		return ""
	}
	to.Fragment = ""
	return to.String()
}

// later returns the wait that an answer asks for.
func later(r *egress.Response) time.Duration {
	if r == nil {
		return 0
	}
	return r.RetryAfter
}

const replyPrefix = "reply-"

// ReplyID is the message ID of the reply of an exchange. It has no full stop, so it is the webhook-id
// as well.
func ReplyID(k durable.ExchangeKey) string {
	return replyPrefix + strconv.FormatUint(uint64(k.ConsumerNo), 36) + "-" + k.ID.String()
}

// ParseReplyID is the inverse of ReplyID; the zero key: it is none.
func ParseReplyID(id string) (k durable.ExchangeKey) {
	no, message, _ := strings.Cut(strings.TrimPrefix(id, replyPrefix), "-")
	n, err := strconv.ParseUint(no, 36, 32)
	if err != nil || !strings.HasPrefix(id, replyPrefix) {
		return durable.ExchangeKey{}
	}
	if k.ID, err = ident.Parse(message); err == nil {
		k.ConsumerNo = uint32(n)
	}
	return k
}

// The headers of a reply besides those of a delivery.
const (
	InReplyTo      = "X-Broker-In-Reply-To"        // the message ID
	ConsumerID     = "X-Broker-Consumer-ID"        // who responded
	ResponseStatus = "X-Broker-Response-Status"    // of its answer
	ResponseCut    = "X-Broker-Response-Truncated" // "true": the response was longer
	RepliedChannel = "X-Broker-Channel-ID"         // of the message
)

// ReplyHeader reports whether a header that is stored with a reply replaces that of a delivery.
func ReplyHeader(name string) bool {
	return name == InReplyTo || name == ConsumerID || name == ResponseStatus || name == ResponseCut ||
		name == RepliedChannel
}
