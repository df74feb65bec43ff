package sqs

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The bounds of a ReceiveMessage.
const (
	mostReceived = 10
	mostWait     = 20 // seconds
)

// errGone means that the client has left: nobody reads the answer.
var errGone = errors.New("sqs: the client is gone")

func (in *receiveMessage) check() error {
	if n := in.MaxNumberOfMessages; n != nil && (*n < 1 || *n > mostReceived) {
		return invalid(*n, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
	}
	if n := in.WaitTimeSeconds; n != nil && (*n < 0 || *n > mostWait) {
		return invalid(*n, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
	}
	if n := in.VisibilityTimeout; n != nil && (*n < 0 || *n > mostVisibility) {
		return invalid(*n, "VisibilityTimeout", "Must be between 0 and 43200, if provided.")
	}
	for _, name := range slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames) {
		if !slices.Contains(systemAttributes, name) && !knownAttribute(name) {
			return badAttributeName.New("Unknown Attribute %.64s.", name)
		}
	}
	return nil
}

func (c *call) receiveMessage(in *receiveMessage) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	q, err := c.queue(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	w := pull.Wish{Limit: 1}
	if in.MaxNumberOfMessages != nil {
		w.Limit = *in.MaxNumberOfMessages
	}
	w.Wait = c.o.Policies.Of(q.k.Policy).SQSWait
	if in.WaitTimeSeconds != nil {
		w.Wait = time.Duration(*in.WaitTimeSeconds) * time.Second
	}
	again := in.VisibilityTimeout != nil && *in.VisibilityTimeout == 0
	if in.VisibilityTimeout != nil {
		w.Lease = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	st := c.standing(q)
	r, err := c.o.Plane.Receive(c.rc, &st, w)
	switch {
	case err != nil:
		return nil, err
	case r.Gone:
		return nil, errGone
	case r.Crowded:
		c.slow(w.Wait)
	}
	jobs := r.Jobs()
	out := &received{made: func(ok bool) {
		switch {
		case !ok:
			r.Return() // too many of the answers of this client are unread
		case again:
			r.Keep()
			c.visible(&st, jobs)
		default:
			r.Keep()
		}
	}}
	for i := range jobs {
		out.Messages = append(out.Messages, c.message(q, &jobs[i], in))
	}
	return out, nil
}

// slowed bounds the requests of a receiver for which there is no place to wait, to one in that time.
const slowed = time.Second

// slow delays the empty answer to a receive that should have waited. Receivers ask again at once.
func (c *call) slow(wait time.Duration) {
	timer := time.NewTimer(min(wait, slowed))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// visible makes jobs visible again that were just received, as a VisibilityTimeout of 0 wants it. They have been
// received, and are not with this receiver any more.
func (c *call) visible(st *catalogue.Standing, jobs []pull.ReceivedJob) {
	if len(jobs) == 0 {
		return
	}
	reports := make([]pull.Report, len(jobs))
	for i, j := range jobs {
		reports[i] = pull.Report{ID: j.ID, Lease: j.Lease, Attempt: j.Attempt}
	}
	for _, err := range c.o.Plane.Settle(c.rc, st, reports) {
		if err != nil { // the usual timeout ends it
			c.o.Log.Debug("a message stays invisible after its receive", "error", err, "request_id", requestID(c.rc))
		}
	}
}

// message returns a job as its receiver gets it.
func (c *call) message(q queue, j *pull.ReceivedJob, in *receiveMessage) message {
	m := message{MessageId: j.Message.PathID(), ReceiptHandle: handleOf(j, q.k.No), Body: string(j.Message.Payload)}
	attributes, trace := attributesOf(j.Message.Headers)
	if !text(m.Body) || m.Body == "" {
		m.Body = base64.StdEncoding.EncodeToString(j.Message.Payload)
		encoding := "base64"
		attributes[bodyEncoding] = attribute{DataType: "String", StringValue: &encoding}
	}
	m.MD5OfBody = md5Of(m.Body)
	m.MessageAttributes = wanted(attributes, in.MessageAttributeNames)
	m.MD5OfMessageAttributes = md5OfAttributes(m.MessageAttributes)
	m.Attributes = c.systemAttributes(q, j, trace, slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames))
	return m
}

// systemAttributes are those that SQS has of a message.
var systemAttributes = []string{"All", "ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount", "AWSTraceHeader",
	"SenderId", "SentTimestamp", "MessageDeduplicationId", "MessageGroupId", "SequenceNumber", "DeadLetterQueueSourceArn"}

func (c *call) systemAttributes(q queue, j *pull.ReceivedJob, trace string, names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	m := j.Message
	sent := m.ID.Millis()
	all := map[string]string{
		"ApproximateReceiveCount": strconv.Itoa(j.Receipts),
		"SentTimestamp":           strconv.FormatInt(sent, 10),
		"SenderId":                j.Producer,
		"AWSTraceHeader":          trace,
		"MessageGroupId":          string(m.OrderingKey()),
	}
	if j.Receipts <= 1 && !j.Again { // the time of an earlier receive is not kept, and none is made up
		all["ApproximateFirstReceiveTimestamp"] = strconv.FormatInt(c.o.NowMs(), 10)
	}
	if q.fifo() {
		all["SequenceNumber"] = sequence(m.ID)
		all["MessageDeduplicationId"] = m.PublicID()
	} else if m.Key != "" {
		all["MessageDeduplicationId"] = m.PublicID()
	}
	out := map[string]string{}
	for name, value := range all {
		if value != "" && (slices.Contains(names, name) || slices.Contains(names, "All")) {
			out[name] = value
		}
	}
	return out
}

// sequence is the SequenceNumber of a message: its ID as a number, so it grows with time.
func sequence(id ident.ID) string {
	return fmt.Sprintf("%029s", new(big.Int).SetBytes(id[:]).String())
}

// handleOf returns the receipt handle of a job: its ID, the attempt and the number of the consumer, and its lease.
func handleOf(j *pull.ReceivedJob, consumer uint32) string {
	return j.ID + "." + strconv.Itoa(j.Attempt) + "-" + strconv.FormatUint(uint64(consumer), 10) + "." + j.Lease
}

// parseHandle is the inverse of handleOf.
func parseHandle(handle string) (r pull.Report, consumer uint32, err error) {
	if handle == "" {
		return r, 0, missingParameter("ReceiptHandle")
	}
	id, rest, _ := strings.Cut(handle, ".")
	numbers, lease, _ := strings.Cut(rest, ".")
	attempt, of, _ := strings.Cut(numbers, "-")
	_, bad := ident.Parse(id)
	n, err := strconv.Atoi(attempt)
	no, e := strconv.ParseUint(of, 10, 32)
	if bad != nil || err != nil || e != nil || n < 1 || lease == "" || len(lease) > 255 {
		return r, 0, badHandle.New("The input receipt handle %.64q is not a valid receipt handle.", handle)
	}
	return pull.Report{ID: id, Lease: lease, Attempt: n}, uint32(no), nil
}
