package sqs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// textType is the content type of messages of SQS clients, whose bodies are texts.
const textType = "text/plain; charset=utf-8"

// mostDelay is the longest DelaySeconds.
const mostDelay = 900

// token is what SQS takes as a MessageGroupId and a MessageDeduplicationId.
var token = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")

func (c *call) sendMessage(in *sendMessage) (any, error) {
	b, err := c.newBatch(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	defer b.free()
	if err := b.add(&in.sending); err != nil {
		return nil, err
	}
	b.submit()
	return b.answer(0)
}

func (c *call) sendBatch(in *sendBatch) (any, error) {
	ids := make([]string, len(in.Entries))
	total := 0
	for i := range in.Entries {
		ids[i] = in.Entries[i].Id
		total += in.Entries[i].size()
	}
	if err := checkEntries(ids); err != nil {
		return nil, err
	}
	if total > mostMessage {
		return nil, batchTooLong.New("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", mostMessage,
			total)
	}
	b, err := c.newBatch(in.QueueUrl)
	if err != nil {
		return nil, err
	}
	defer b.free()
	out := &sentBatch{Successful: []sent{}}
	var taken []int
	for i := range in.Entries {
		if err := b.add(&in.Entries[i]); err != nil {
			out.Failed = append(out.Failed, failureOf(ids[i], err))
			continue
		}
		taken = append(taken, i)
	}
	b.submit()
	for n, i := range taken {
		s, err := b.answer(n)
		if err != nil {
			out.Failed = append(out.Failed, failureOf(ids[i], err))
			continue
		}
		s.Id = ids[i]
		out.Successful = append(out.Successful, *s)
	}
	return out, nil
}

// entryID is what SQS takes as the ID of an entry.
var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// mostEntries bounds a batch.
const mostEntries = 10

// checkEntries refuses a batch by the IDs of its entries.
func checkEntries(ids []string) error {
	switch {
	case len(ids) == 0:
		return emptyBatch.New("The batch request doesn't contain any entries.")
	case len(ids) > mostEntries:
		return tooManyEntries.New("Maximum number of entries per request are %d. You have sent %d.", mostEntries, len(ids))
	}
	seen := map[string]bool{}
	for _, id := range ids {
		switch {
		case !entryID.MatchString(id):
			return badEntryID.New("A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can " +
				"be at most 80 letters long.")
		case seen[id]:
			return idsNotDistinct.New("Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}

// failureOf is the answer to an entry that failed.
func failureOf(id string, err error) failure {
	f := faultOf(err)
	return failure{Id: id, SenderFault: f.sender(), Code: f.Code, Message: f.Message}
}

// size is the size of a message as SQS counts it.
func (s *sending) size() int {
	n := 0
	if s.MessageBody != nil {
		n = len(*s.MessageBody)
	}
	for name, a := range s.MessageAttributes {
		n += len(name) + len(a.DataType) + len(a.BinaryValue)
		if a.StringValue != nil {
			n += len(*a.StringValue)
		}
	}
	return n
}

// check refuses a message as SQS does.
func (s *sending) check(q queue, most int) error {
	switch {
	case s.MessageBody == nil, *s.MessageBody == "":
		return missingParameter("MessageBody")
	case s.size() > most:
		return badValue.New("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", most)
	case !text(*s.MessageBody):
		return badContents.New("Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | " +
			"#xE000 to #xFFFD | #x10000 to #x10FFFF")
	case len(s.MessageAttributes) > mostAttributes:
		return badValue.New("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(s.MessageAttributes),
			mostAttributes)
	case s.DelaySeconds != nil && (*s.DelaySeconds < 0 || *s.DelaySeconds > mostDelay):
		return invalid(*s.DelaySeconds, "DelaySeconds", fmt.Sprintf("DelaySeconds must be >= 0 and <= %d.", mostDelay))
	case q.fifo() && s.DelaySeconds != nil && *s.DelaySeconds > 0:
		return invalid(*s.DelaySeconds, "DelaySeconds",
			"The request include parameter that is not valid for this queue type.")
	case q.fifo() && s.MessageGroupId == nil:
		return missingParameter("MessageGroupId")
	}
	for name, value := range map[string]*string{"MessageGroupId": s.MessageGroupId,
		"MessageDeduplicationId": s.MessageDeduplicationId} {
		if value != nil && !token.MatchString(*value) {
			return badValue.New("Value for parameter %s is invalid. Reason: %s can only include alphanumeric and punctuation "+
				"characters. 1 to 128 in length.", name, name)
		}
	}
	for name, a := range s.MessageAttributes {
		if err := checkAttribute(name, a); err != nil {
			return err
		}
	}
	for name, a := range s.MessageSystemAttributes {
		if name != "AWSTraceHeader" {
			return badValue.New("Message system attribute name %.64q is invalid: the only one is AWSTraceHeader.", name)
		}
		if a.DataType != "String" || a.StringValue == nil || *a.StringValue == "" || !headerText(*a.StringValue) {
			return badValue.New("The message system attribute AWSTraceHeader must be a String of one line.")
		}
	}
	return nil
}

// A batch is messages on their way into one queue.
type batch struct {
	*call
	q      queue
	sender *durable.Producer
	w      *publish.Drafter
	drafts []*publish.Draft
	inputs []*sending
	// repeats are the messages that earlier ones of their MessageDeduplicationId are, by index; the drafts of
	// those are nil.
	repeats map[int]original
}

// An original is a message that is stored.
type original struct {
	id  string
	seq ident.ID
}

func (c *call) newBatch(queueURL string) (*batch, error) {
	b := &batch{call: c, repeats: map[int]original{}}
	var err error
	if b.q, err = c.queue(queueURL); err != nil {
		return nil, err
	}
	err = c.timed(func(ctx context.Context) error {
		if b.sender, err = c.Manage.Sender(ctx, c.rc, SenderID); err != nil {
			return err
		}
		st := c.o.Catalogue.StandingOf(c.ctx, b.q.ch, nil, b.sender, c.still())
		b.w, err = c.o.Plane.Sending(ctx, st)
		return err
	})
	return b, err
}

func (b *batch) free() {
	for _, d := range b.drafts {
		if d != nil {
			d.Free()
		}
	}
}

// add makes a draft of a message, or finds the earlier one that it repeats.
func (b *batch) add(s *sending) error {
	if err := s.check(b.q, min(mostMessage, b.o.Plane.MaxBody())); err != nil {
		return err
	}
	id, repeated, err := b.identify(s)
	if err != nil {
		return err
	}
	if repeated != nil {
		b.repeats[len(b.drafts)] = *repeated
		b.drafts, b.inputs = append(b.drafts, nil), append(b.inputs, s)
		return nil
	}
	d := b.w.Draft()
	b.w.Complete(b.ctx, d, b.describe(d, s, id))
	if err := d.Err(); err != nil {
		d.Free()
		return err
	}
	b.drafts, b.inputs = append(b.drafts, d), append(b.inputs, s)
	return nil
}

// describe sets the properties of a draft.
func (b *batch) describe(d *publish.Draft, s *sending, id string) error {
	trace := ""
	if a, ok := s.MessageSystemAttributes["AWSTraceHeader"]; ok {
		trace = *a.StringValue
	}
	headers, err := headersOf(s.MessageAttributes, trace, b.o.TokenHeader)
	if err != nil {
		return err
	}
	total := 0
	for name, value := range headers {
		total += len(name) + len(value)
		if err := d.Set("Header:"+name, value); err != nil {
			return err
		}
	}
	if total > mostHeaders {
		return badValue.New("The message attributes have %d bytes as headers of the broker, which carries %d.", total,
			mostHeaders)
	}
	set := [][2]string{{"Payload", *s.MessageBody}, {"ContentType", contentType(s)}, {"Consumers", b.q.k.ID},
		{"MessageID", id}}
	if s.MessageGroupId != nil {
		set = append(set, [2]string{"OrderingKey", *s.MessageGroupId})
	}
	if delay := b.delay(s); delay > 0 {
		set = append(set, [2]string{"Delay", strconv.Itoa(delay)})
	}
	for _, one := range set {
		if err := d.Set(one[0], one[1]); err != nil {
			return err
		}
	}
	return nil
}

// delay is the delay of a message in seconds: its own, or else that of its queue.
func (b *batch) delay(s *sending) int {
	if s.DelaySeconds != nil {
		return *s.DelaySeconds
	}
	return int(b.o.Policies.Of(b.q.k.Policy).SQSDelay / time.Second)
}

// mostHeaders is what package metadata carries, bytes, less the ends of lines.
const mostHeaders = 8<<10 - 128

// contentType is the content type of a message: an attribute may say it.
func contentType(s *sending) string {
	if a, ok := s.MessageAttributes["Content-Type"]; ok && a.DataType == "String" && headerText(*a.StringValue) &&
		len(*a.StringValue) <= 255 {
		return *a.StringValue
	}
	return textType
}

// terms are those of the messages of a request. All SQS clients are one producer, so each channel has a share of
// its own.
func (c *call) terms() accept.Terms {
	return accept.Terms{Patience: accept.Patience, Since: time.Now(), Account: c.who.share(c.rc)}
}

// submit stores the messages.
func (b *batch) submit() {
	var all []*publish.Draft
	for _, d := range b.drafts {
		if d != nil {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return
	}
	s := b.w.Submit(b.ctx, b.terms(), all)
	s.Wait()
}

// answer returns what became of the message of that index.
func (b *batch) answer(i int) (*sent, error) {
	in := b.inputs[i]
	of, repeated := b.repeats[i]
	if !repeated {
		d := b.drafts[i]
		of = original{d.MessageID(), d.Stored()}
		if err := d.Err(); err != nil {
			if !errors.Is(err, durable.ErrDuplicate) && !errors.Is(err, durable.ErrConflict) || d.Key() == "" {
				return nil, err
			}
			first, e := b.stored(d.Key())
			if e != nil || first == nil { // it was stored since the look in identify
				return nil, err
			}
			of = *first
		}
	}
	out := &sent{MessageId: of.id, MD5OfMessageBody: md5Of(*in.MessageBody),
		MD5OfMessageAttributes:       md5OfAttributes(in.MessageAttributes),
		MD5OfMessageSystemAttributes: md5OfAttributes(in.MessageSystemAttributes)}
	if b.q.fifo() && !of.seq.IsZero() {
		out.SequenceNumber = sequence(of.seq)
	}
	return out, nil
}

// deduplicated is how long a MessageDeduplicationId, or the content of a message of a FIFO queue, names one
// message.
const deduplicated = 5 * time.Minute

// identify returns the message ID that a message gets, "" for one of the broker, or the message that it repeats.
//
// A MessageDeduplicationId is the message ID, and without one that of a message of a FIFO queue is a digest of
// its body. It is one in its queue, and a message ID one in its channel: of a queue that is not named as its
// channel it is a digest of both.
//
// An ID of the broker is for ever and one of SQS for five minutes: where an older message has the ID, the number
// of the present five minutes is added to it. Those before are looked for as well, so an ID is never taken twice
// within five minutes, but by two requests that begin in different ones at once.
func (b *batch) identify(s *sending) (id string, repeated *original, err error) {
	switch {
	case s.MessageDeduplicationId != nil:
		id = *s.MessageDeduplicationId
		if !ident.ValidName(id) || ident.Made(id) || ident.Reserved(id) {
			id = digest(id)
		}
	case b.q.fifo():
		id = digest(*s.MessageBody)
	case b.delay(s) > 0, b.w.Journals():
		return newID(), nil, nil // the broker's own would be known later
	default:
		return "", nil, nil
	}
	if b.q.k.ID != b.q.ch.ID { // other queues of the channel may have the same one
		id = digest(b.q.k.ID + "\x00" + id)
	}
	now := b.o.NowMs()
	slot := now / deduplicated.Milliseconds()
	inSlot := func(n int64) string { return id + "~" + strconv.FormatInt(n, 10) }
	free := ""
	for _, candidate := range []string{id, inSlot(slot), inSlot(slot - 1)} {
		of, err := b.stored(b.key(candidate))
		switch {
		case err != nil:
			return "", nil, err
		case of == nil && free == "":
			free = candidate
		case of != nil && now-of.seq.Millis() < deduplicated.Milliseconds():
			return "", of, nil
		}
	}
	if free == "" || free == inSlot(slot-1) {
		free = inSlot(slot)
	}
	return free, nil, nil
}

// key is how the store knows a message ID.
func (b *batch) key(id string) string {
	if b.q.ch.Intake.Identity == policy.IdentityProducer {
		return durable.ProducerKey(b.sender.No, id)
	}
	return id
}

// stored returns the message that has a key; nil: there is none.
func (b *batch) stored(key string) (of *original, err error) {
	err = b.timed(func(ctx context.Context) error {
		id, err := b.o.Store.MessageByKey(ctx, b.q.ch.No, key)
		switch {
		case errors.Is(err, durable.ErrNotFound):
			return nil
		case err != nil:
			return err
		}
		m := durable.Message{ID: id, Key: key}
		of = &original{m.PathID(), id}
		return nil
	})
	return of, err
}

// digest is the message ID of a text that is none.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
