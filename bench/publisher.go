package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/bench/rawhttp"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// errPause is how long a connection waits after an answer without success, so that a refusing
// broker does not get requests at the rate of its refusals.
const errPause = 20 * time.Millisecond

// A post with a message ID is repeated while its outcome is unknown.
const (
	maxRepeats  = 20
	repeatPause = 50 * time.Millisecond // doubled each time up to a second
)

// A publisher is one producer connection at the single route.
type publisher struct {
	w    *window
	no   int
	conn *rawhttp.Conn
	buf  []byte
	key  []byte
}

// Run sends a message for each ticket of the schedule until the schedule ends.
func (p *publisher) Run(ctx context.Context) error {
	defer p.conn.Close()
	for {
		t, ok := p.w.schedule.Next(ctx)
		if !ok {
			return nil
		}
		p.post(ctx, t.First)
	}
}

func (p *publisher) post(ctx context.Context, seq uint64) {
	w := p.w
	sent := w.now()
	intended := w.schedule.Intended(seq, sent)
	p.build(Identity{Run: w.run, Seq: seq, Intended: w.unix(intended), Sent: w.unix(sent)})
	for repeat, doubt := 0, false; ; repeat++ {
		res, err := p.conn.Do(p.buf)
		now := w.now()
		// An earlier post, whose answer was lost, has stored a duplicate.
		if err == nil && (res.Status == 201 || res.Status == 202 || repeat > 0 &&
			codeOf(res.Body) == "duplicate_message_id") {
			w.answered(p.no, seq, res.Status, res.Header("location"), sent, now)
			return
		}
		wait, final := errPause, false
		switch {
		case errors.Is(err, rawhttp.ErrNotSent):
			w.failed("not sent", []byte(err.Error()))
		case err != nil:
			w.failed("connection lost", []byte(err.Error()))
			doubt = true
		default:
			w.failed(fmt.Sprint("status ", res.Status), res.Body)
			wait = max(wait, time.Duration(res.RetryAfter)*time.Second)
			final = res.Status < 500
			doubt = doubt || !problem.NothingStored(res.Status, codeOf(res.Body))
		}
		if final || !w.config.MessageIDs || repeat == maxRepeats || ctx.Err() != nil {
			if doubt {
				w.ledger.Uncertain(seq)
			} else {
				w.ledger.Refused(seq)
			}
			pause(ctx, errPause)
			return
		}
		pause(ctx, max(min(wait, time.Second), min(repeatPause<<repeat, time.Second)))
	}
}

// build writes the request into p.buf and records its body in the ledger.
func (p *publisher) build(id Identity) {
	w := p.w
	b := w.single[w.ledger.Channel(id.Seq)*w.mix.Len()+w.mix.Level(id.Seq)].AppendHead(p.buf[:0])
	if w.payloads.Real() {
		b = append(b, identityHeader+": "...)
		b = id.Append(b)
		b = append(b, "\r\n"...)
		if w.audit != nil {
			b = rawhttp.AppendField(b, nameHeader, []byte(w.payloads.Name(id.Seq)))
		}
	}
	if w.config.MessageIDs {
		p.key = appendKey(p.key[:0], id.Run, id.Seq)
		b = rawhttp.AppendField(b, "X-Broker-Message-ID", p.key)
	}
	if w.config.Keys > 0 {
		b = rawhttp.AppendField(b, orderingHeader, w.orderingKey(p.no, id.Seq))
	}
	b = rawhttp.AppendLength(b, w.payloads.Len(id.Seq))
	start := len(b)
	b = w.payloads.Append(b, id)
	w.ledger.Plan(id.Seq, sum(b[start:]))
	p.buf = b
}

// orderingHeader has the ordering key of a message, of a publish and of a delivery.
const orderingHeader = "X-Broker-Ordering-Key"

// orderingKey returns one of the keys of a connection. The sequence numbers of a connection may all
// be even, so the key is not the remainder of the number itself.
func (w *window) orderingKey(connection int, seq uint64) []byte {
	own := max(w.config.Keys/w.config.Connections, 1)
	return fmt.Appendf(nil, "k%d", connection*own+int(seq*0x9e3779b97f4a7c15>>32)%own)
}

// appendKey appends the producer's own ID of a message.
func appendKey(b []byte, run, seq uint64) []byte {
	b = strconv.AppendUint(append(b, 'b'), run, 36)
	return strconv.AppendUint(append(b, '-'), seq, 10)
}

// messageID reads the ID from the Location of a message. It returns zero for an ID that the broker
// did not generate.
func messageID(location []byte) ident.ID {
	id, err := ident.Parse(string(location[bytes.LastIndexByte(location, '/')+1:]))
	if err != nil {
		return ident.ID{}
	}
	return id
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
