package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/valyala/fastjson"

	"github.com/penstock-broker/penstock/bench/rawhttp"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A batchPublisher is one producer connection at the batch route: one request per ticket, one line
// per message.
type batchPublisher struct {
	w     *window
	no    int
	conn  *rawhttp.Conn
	lines []byte
	body  []byte
	buf   []byte

	parser fastjson.Parser
}

// Run sends a request for each ticket of the schedule until the schedule ends.
func (p *batchPublisher) Run(ctx context.Context) error {
	defer p.conn.Close()
	for {
		t, ok := p.w.schedule.Next(ctx)
		if !ok {
			return nil
		}
		p.post(ctx, t)
	}
}

func (p *batchPublisher) post(ctx context.Context, t Ticket) {
	w := p.w
	sent := w.now()
	p.lines = p.lines[:0]
	for seq := t.First; seq < t.First+uint64(t.N); seq++ {
		p.line(Identity{Run: w.run, Seq: seq, Intended: w.unix(w.schedule.Intended(seq, sent)), Sent: w.unix(sent)})
	}
	p.buf = w.batch[w.ledger.Channel(t.First)].AppendHead(p.buf[:0])
	p.buf = rawhttp.AppendLength(p.buf, len(p.lines))
	p.buf = append(p.buf, p.lines...)
	res, err := p.conn.Do(p.buf)
	now := w.now()
	rest, refused := []byte(nil), false
	switch {
	case err != nil:
		w.failed("connection lost", []byte(err.Error()))
	case res.Status != 200:
		w.failed(fmt.Sprint("batch status ", res.Status), res.Body)
		refused = problem.NothingStored(res.Status, codeOf(res.Body))
	default:
		rest = res.Body
	}
	for seq := t.First; seq < t.First+uint64(t.N); seq++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\n'})
		line := parseBatchAnswer(&p.parser, text)
		switch {
		case line.status == 201 || line.status == 202:
			w.answered(p.no, seq, line.status, line.location, sent, now)
		case refused || problem.NothingStored(line.status, line.code):
			w.ledger.Refused(seq)
			if !refused {
				w.failed(fmt.Sprint("line status ", line.status), text)
			}
		default:
			w.ledger.Uncertain(seq)
			if err == nil {
				w.failed("line without an answer", text)
			}
		}
	}
	if err != nil || res.Status != 200 {
		pause(ctx, errPause)
	}
}

// line appends one message to p.lines and records its body in the ledger.
func (p *batchPublisher) line(id Identity) {
	w := p.w
	p.body = w.payloads.Append(p.body[:0], id)
	w.ledger.Plan(id.Seq, sum(p.body))
	b := append(append(append(p.lines, `{"ContentType":"`...), w.config.ContentType...), '"')
	if priority := w.mix.Priority(w.mix.Level(id.Seq)); priority != 0 {
		b = strconv.AppendInt(append(b, `,"Priority":`...), int64(priority), 10)
	}
	if w.config.MessageIDs {
		b = append(appendKey(append(b, `,"MessageID":"`...), id.Run, id.Seq), '"')
	}
	if w.payloads.Real() {
		b = append(id.Append(append(b, `,"Headers":{"`+identityHeader+`":"`...)), '"')
		if w.audit != nil {
			b = append(append(append(b, `,"`+nameHeader+`":"`...), w.payloads.Name(id.Seq)...), '"')
		}
		b = append(b, '}')
		b = base64.StdEncoding.AppendEncode(append(b, `,"PayloadBase64":"`...), p.body)
	} else { // printable ASCII without quotes: nothing to escape
		b = append(append(b, `,"Payload":"`...), p.body...)
	}
	p.lines = append(b, "\"}\n"...)
}
