package pull

import (
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/redisq"
)

// A queuedJob is one entry of queued-jobs.
type queuedJob struct {
	w        redisq.Waiting
	attempts int
	counts   jobCounts
	msg      *durable.Message
	producer string          // its ID; "": the broker made the message
	replay   *durable.Replay // nil: it is a job of the consumer itself
}

// A jobCounts is what is counted of a job beside its attempts.
type jobCounts struct{ leasesLost, givenBack int }

// countsOf returns what is counted of a job that has had so many attempts. Those that the store does not have yet
// are leases that ended without a word: it has each other outcome before the job is due again.
func countsOf(s *durable.JobState, attempts int) jobCounts {
	return jobCounts{s.LeasesLost + max(0, attempts-s.Attempts), s.GivenBack}
}

// appendJSON appends the members that are not 0.
func (c jobCounts) appendJSON(b []byte) []byte {
	if c == (jobCounts{}) { // nearly always
		return b
	}
	if c.leasesLost > 0 {
		b = append(b, `,"LeasesLost":`...)
		b = strconv.AppendInt(b, int64(c.leasesLost), 10)
	}
	if c.givenBack > 0 {
		b = append(b, `,"GivenBack":`...)
		b = strconv.AppendInt(b, int64(c.givenBack), 10)
	}
	return b
}

// A queuedJobs is the answer to queued-jobs.
type queuedJobs struct {
	k    *durable.Consumer
	jobs []queuedJob
	next string // "": the last page
	why  why    // it is empty
	size portion
}

func (q *queuedJobs) appendJSON(t *answer.Text) {
	b := append(t.B, `{"Result":[`...)
	for i, j := range q.jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"ID":"`...)
		b = j.msg.ID.Job(q.k.Position).AppendText(b)
		b = append(b, `","Priority":`...)
		b = strconv.AppendInt(b, int64(j.w.Priority), 10)
		b = append(b, `,"IncrementalTimeout":0,"Attempts":`...)
		b = strconv.AppendInt(b, int64(j.attempts), 10)
		b = j.counts.appendJSON(b)
		b = appendReplay(b, j.replay)
		t.B = append(b, `,"Message":`...)
		appendMessage(t, j.msg, j.producer)
		b = append(t.B, '}')
	}
	b = append(b, `],"Pages":{`...)
	if q.next != "" {
		b = append(b, `"next":`...)
		b = jsontext.Append(b, q.next)
	}
	b = append(b, '}')
	t.B = append(q.why.appendJSON(b), "}\n"...)
}

// httpDate is the IMF-fixdate of RFC 9110.
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// sizes is sizeOf for a page.
func (q *queuedJobs) sizes() (size, kept int) {
	size = q.size.bytes
	for _, j := range q.jobs {
		n := apart(j.msg)
		size -= n.shown
		kept += n.kept
	}
	return size, kept
}

// producerOf returns the ID of the producer of a message, "" where it has none.
func (p *Puller) producerOf(m *durable.Message) string {
	if producer := p.catalogue.ProducerByNo(m.ProducerNo); producer != nil {
		return producer.ID
	}
	return ""
}

// appendMessage appends a message in the form that pull consumers receive. A UTF-8 payload is shown
// as text. Any other payload is shown in base64, with PayloadEncoding.
func appendMessage(t *answer.Text, m *durable.Message, producer string) {
	b := append(t.B, `{"MessageID":`...)
	b = jsontext.Append(b, m.PathID())
	if producer != "" {
		b = append(b, `,"ProducerID":`...)
		b = jsontext.Append(b, producer)
	}
	t.B = append(b, `,"Payload":`...)
	text := utf8.Valid(m.Payload)
	t.String(m.Payload, !text)
	b = t.B
	if !text {
		b = append(b, `,"PayloadEncoding":"base64"`...)
	}
	b = append(b, `,"Headers":{`...)
	first := true
	for name, value := range metadata.Headers(m.Headers) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = jsontext.Append(b, name)
		b = append(b, ':')
		b = appendLatin1(b, value)
	}
	b = append(b, `},"ContentType":`...)
	b = appendLatin1(b, m.ContentType)
	if value := m.ContentEncoding(); value != "" {
		b = append(b, `,"ContentEncoding":`...)
		b = appendLatin1(b, value)
	}
	t.B = append(b, '}')
}

// appendLatin1 appends a header value.
func appendLatin1(b []byte, s string) []byte { return jsontext.Append(b, jsontext.HeaderText(s)) }

// writeJSON sets the body that f appends, of about size bytes at most. That of a small answer, whose
// held is nil, uses a buffer that the server keeps for the connection. A large one has a buffer of
// its own, which is garbage afterwards.
func writeJSON(rc *fasthttp.RequestCtx, held *answer.Body, size int, f func(t *answer.Text)) {
	rc.SetContentType("application/json")
	if held == nil {
		t := answer.Text{B: rc.Response.SwapBody(nil)[:0], Whole: true}
		f(&t)
		rc.Response.SwapBody(t.B)
		return
	}
	t := answer.Text{B: held.Buffer(size)}
	f(&t)
	held.Send(rc, t)
}

// writeSmall sets the body that f appends, in the buffer of the connection.
func writeSmall(rc *fasthttp.RequestCtx, f func(b []byte) []byte) {
	rc.SetContentType("application/json")
	rc.Response.SwapBody(f(rc.Response.SwapBody(nil)[:0]))
}

// replayHeader carries the ID of the replay of a job that is delivered once more.
const replayHeader = "X-Broker-Replay"

// appendReplay appends the member Replay of a job, if it is one of a replay.
func appendReplay(b []byte, r *durable.Replay) []byte {
	if r == nil {
		return b
	}
	b = append(b, `,"Replay":"`...)
	b = append(b, r.ID()...)
	return append(b, '"')
}
