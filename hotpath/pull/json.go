package pull

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/jsontext"
	"github.com/penstock-broker/penstock/redisq"
)

// A queuedJob is one entry of queued-jobs.
type queuedJob struct {
	w        redisq.Waiting
	attempts int
	msg      *durable.Message
	replay   *durable.Replay // nil: it is a job of the consumer itself
}

// A queuedJobs is the answer to queued-jobs.
type queuedJobs struct {
	k    *durable.Consumer
	jobs []queuedJob
	next string // "": the last page
	size portion
}

func (q *queuedJobs) appendJSON(b []byte) []byte {
	b = append(b, `{"Result":[`...)
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
		b = appendReplay(b, j.replay)
		b = append(b, `,"Message":`...)
		b = appendMessage(b, j.msg)
		b = append(b, '}')
	}
	b = append(b, `],"Pages":{`...)
	if q.next != "" {
		b = append(b, `"next":`...)
		b = jsontext.Append(b, q.next)
	}
	return append(b, "}}\n"...)
}

// appendMessage appends a message in the form that pull consumers receive. A UTF-8 payload is shown
// as text. Any other payload is shown in base64, with PayloadEncoding.
func appendMessage(b []byte, m *durable.Message) []byte {
	b = append(b, `{"MessageID":`...)
	b = jsontext.Append(b, m.PublicID())
	b = append(b, `,"Payload":`...)
	if utf8.Valid(m.Payload) {
		b = jsontext.Append(b, m.Payload)
	} else {
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, m.Payload)
		b = append(b, `","PayloadEncoding":"base64"`...)
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
	return append(b, '}')
}

// appendLatin1 appends a header value. A value that is not UTF-8 is converted byte by byte from
// Latin-1, which HTTP once allowed, so that no byte is lost.
func appendLatin1(b []byte, s string) []byte {
	if utf8.ValidString(s) {
		return jsontext.Append(b, s)
	}
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return jsontext.Append(b, string(runes))
}

// keptAnswer is the largest body, in bytes, that uses a buffer of the server. The server keeps
// these buffers permanently, one for each connection.
const keptAnswer = 256 << 10

// writeJSON sets the body that f appends, of about size bytes at most. A small body uses a buffer
// that the server reuses; a large one uses its own buffer, which is garbage afterwards.
func writeJSON(rc *fasthttp.RequestCtx, size int, f func(b []byte) []byte) {
	rc.SetContentType("application/json")
	if size > keptAnswer {
		rc.Response.SetBodyRaw(f(make([]byte, 0, size)))
		return
	}
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
