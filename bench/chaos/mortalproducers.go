//go:build unix

package chaos

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// fields are the headers of a producer.
func (m *mortal) fields() []string {
	return []string{"X-Broker-Channel-Token", m.plan.Token, "X-Broker-Producer-ID", m.plan.Producer,
		"X-Broker-Producer-Token", m.plan.Token}
}

// single makes a message and the request that posts it, and writes its intent to disk. It returns
// false if that fails.
func (m *mortal) single() (post, script, bool) {
	one, intent := m.producer.single(m.rng, m.channel(m.rng))
	fields := append(m.fields(), "X-Broker-Message-Priority", strconv.Itoa(one.priority))
	if name, value := one.header(); name != "" {
		fields = append(fields, name, value)
	}
	if one.order != "" {
		fields = append(fields, "X-Broker-Ordering-Key", one.order)
	}
	s := whole(request("/channel/"+m.plan.Channels[one.channel]+"/broadcast", "application/octet-stream", fields...),
		one.body)
	return one, s, intent.Wait() == nil
}

// again posts messages with an ID, as another client, until they are known to be stored. A message
// that the dead client has stored must then exist once. Some messages are not posted again, so that
// the rows of the store show the effect of the dead client's request alone.
func (m *mortal) again(ctx context.Context, posts ...post) {
	posts = keyed(posts)
	if len(posts) == 0 || m.rng.IntN(2) == 0 {
		return
	}
	stop, cancel := lateContext(ctx, finishWithin)
	defer cancel()
	for len(posts) > 0 && m.repeat(stop, m.rng, posts...) {
		broker := m.pick(m.rng.IntN(len(m.plan.Brokers)))
		if len(posts) > 1 {
			posts = m.postBatch(posts, broker)
		} else if !m.post(posts[0], broker) {
			return
		}
	}
}

// producerInRequest dies at a byte of a request, which must not be stored.
func (m *mortal) producerInRequest(ctx context.Context) string {
	one, s, ok := m.single()
	if !ok {
		return ""
	}
	start := time.Now()
	how := ""
	w, err := m.dial()
	if err == nil {
		_, err = w.Write(s.bytes[:m.rng.IntN(len(s.bytes))])
		pause(ctx, m.upTo(20*time.Millisecond))
		if died := w.die(m.rng); err == nil {
			how = died
		}
	}
	m.told(one, lineVerdict{verdict: refused}, m.kind, m.broker, start)
	m.again(ctx, one)
	return how
}

func (m *mortal) producerBeforeAnswer(ctx context.Context) string { return m.unheard(ctx, 0) }

// producerInAnswer dies at a byte of the answer. The answer counts if its status was read.
func (m *mortal) producerInAnswer(ctx context.Context) string {
	return m.unheard(ctx, 1+m.rng.IntN(40))
}

// statusBytes is the length of "HTTP/1.1 201".
const statusBytes = 12

// unheard posts a message, reads that many bytes of the answer, and dies.
func (m *mortal) unheard(ctx context.Context, read int) string {
	one, s, ok := m.single()
	if !ok {
		return ""
	}
	start := time.Now()
	v, how := lineVerdict{verdict: refused}, ""
	w, err := m.dial()
	if err == nil {
		v.verdict = unknown
		_, err = w.Write(s.bytes)
		answer := make([]byte, read)
		if err == nil && read > 0 {
			_, err = io.ReadFull(w.answers, answer)
		} else {
			pause(ctx, m.upTo(10*time.Millisecond))
		}
		if died := w.die(m.rng); err == nil {
			how = died
		}
		if err == nil && read >= statusBytes && string(answer[statusBytes-3:statusBytes]) == "201" {
			v = lineVerdict{verdict: acked, status: http.StatusCreated}
		}
	}
	m.told(one, v, m.kind, m.broker, start)
	m.again(ctx, one)
	return how
}

// A mortalBatch is a batch request whose client is going to die.
type mortalBatch struct {
	posts []post
	script
	lines []int // of each post, in the request
}

// batchOf makes messages of one channel and the request that posts them, with that many malformed
// lines in the middle, and writes their intent to disk. ok is false if that fails.
func (m *mortal) batchOf(bad int) (b mortalBatch, ok bool) {
	n := 2 + m.rng.IntN(40)
	posts, intent := m.several(m.rng, m.channel(m.rng), n)
	b.posts = posts
	var lines [][]byte
	for i := range posts {
		if i == n/2 {
			for range bad {
				lines = append(lines, []byte("{}\n"))
			}
		}
		b.lines = append(b.lines, len(lines))
		lines = append(lines, posts[i].line())
	}
	head := request("/channel/"+m.plan.Channels[posts[0].channel]+"/batch", "application/x-ndjson", m.fields()...)
	b.script = inLines(head, lines, m.rng.IntN(2) == 0)
	return b, intent.Wait() == nil
}

// writeWithin is how long a client keeps writing bytes that the broker does not read.
const writeWithin = 2 * time.Second

// send dials and sends the first n bytes. sent is how many of them may have arrived.
func (m *mortal) send(b *mortalBatch, n int) (w *wire, sent int, err error) {
	if w, err = m.dial(); err != nil {
		return nil, 0, err
	}
	_ = w.SetReadBuffer(4 << 10) // a hint
	if err := w.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return w, 0, err
	}
	sent, err = w.Write(b.bytes[:n])
	return w, sent, err
}

// buried records the verdict on each message of a dead client: the answer if there is one. Of the
// other messages, only those sent up to the end of their line may be stored.
func (m *mortal) buried(ctx context.Context, b *mortalBatch, sent int, answers []lineVerdict, start time.Time) {
	complete := b.sent(sent)
	var open []post
	for i, one := range b.posts {
		v := lineVerdict{verdict: refused}
		switch {
		case i < len(answers):
			v = answers[i]
		case b.lines[i] < complete:
			v.verdict = unknown
		}
		m.told(one, v, m.kind, m.broker, start)
		if v.verdict != acked {
			open = append(open, one)
		}
	}
	m.again(ctx, open...)
}

// batchInRequest dies at a byte of its request, without reading.
func (m *mortal) batchInRequest(ctx context.Context) string {
	return m.silently(ctx, 0, m.upTo(30*time.Millisecond), true)
}

// batchStalled sends a part of its request, and then no byte for a long time.
func (m *mortal) batchStalled(ctx context.Context) string {
	return m.silently(ctx, 0, m.long(), true)
}

// unreadLines is a number of lines whose answers exceed the buffers between the two sides.
const unreadLines = 40_000

// batchNeverReading sends as much as the broker reads, and reads nothing for a long time.
func (m *mortal) batchNeverReading(ctx context.Context) string {
	return m.silently(ctx, unreadLines, m.long(), false)
}

// silently sends a batch, or a part of it, waits, and dies without having read.
func (m *mortal) silently(ctx context.Context, bad int, d time.Duration, part bool) (how string) {
	b, ok := m.batchOf(bad)
	if !ok {
		return ""
	}
	start := time.Now()
	n := len(b.bytes)
	if part {
		n = 1 + m.rng.IntN(n-1)
	}
	w, sent, err := m.send(&b, n)
	if w != nil {
		pause(ctx, d)
		how = w.die(m.rng)
	}
	m.buried(ctx, &b, sent, nil, start)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return "" // the broker was away
	}
	return how
}

// batchAfterAnswers reads the answers to some of its lines, and dies.
func (m *mortal) batchAfterAnswers(ctx context.Context) (how string) {
	b, ok := m.batchOf(0)
	if !ok {
		return ""
	}
	start := time.Now()
	n := len(b.bytes)
	if m.rng.IntN(2) == 0 { // in the middle of sending
		n = min(b.ends[m.rng.IntN(len(b.ends))]+len("\r\n"), n)
	}
	var answers []lineVerdict
	w, sent, err := m.send(&b, n)
	if err == nil {
		answers, err = m.someAnswers(w, 1+m.rng.IntN(b.sent(n)), len(b.posts))
	}
	if w != nil {
		if died := w.die(m.rng); err == nil {
			how = died
		}
	}
	m.buried(ctx, &b, sent, answers, start)
	return how
}

var errRefused = errors.New("chaos: the whole batch was refused")

// someAnswers reads the answers to the first n lines. A refusal of the whole request is the answer
// to each of them.
func (m *mortal) someAnswers(w *wire, n, of int) (out []lineVerdict, err error) {
	res, err := http.ReadResponse(w.answers, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK { // the body is left: to close it would be to read it
		v := overall(res)
		for range of {
			out = append(out, v)
		}
		return out, errRefused
	}
	lines := bufio.NewReader(res.Body)
	for range n {
		v, err := readLine(lines)
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	return out, nil
}
