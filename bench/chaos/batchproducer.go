//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// repeatEvery is the number of batches per batch that is sent a second time although every line was
// answered. Its lines with an ID are then already stored.
const repeatEvery = 10

// batch posts several messages through the batch route and classifies each line separately. It posts
// lines with an ID again until their answers are definite.
func (p *producer) batch(ctx context.Context, rng *rand.Rand) {
	posts, intent := p.several(rng, p.channel(rng), batchLines)
	if intent.Wait() != nil {
		return
	}
	stop, cancel := lateContext(ctx, finishWithin)
	defer cancel()
	again := p.postBatch(posts, p.pick(rng.IntN(len(p.plan.Brokers))))
	if len(again) == 0 && rng.IntN(repeatEvery) == 0 {
		again = keyed(posts)
	}
	for len(again) > 0 && p.repeat(stop, rng, again...) {
		again = p.postBatch(again, p.pick(rng.IntN(len(p.plan.Brokers))))
	}
}

// several makes messages of one channel. It returns the flush of the last one.
func (p *producer) several(rng *rand.Rand, channel, n int) (posts []post, intent *flush) {
	for range n {
		var m post
		m, intent = p.compose(rng, post{channel: channel, identity: identity(rng.IntN(2))})
		posts = append(posts, m)
	}
	return posts, intent
}

// keyed returns the messages that may be posted again.
func keyed(posts []post) (out []post) {
	for _, m := range posts {
		if m.identity != noIdentity {
			out = append(out, m)
		}
	}
	return out
}

// line is the message as a line of a batch.
func (m *post) line() []byte {
	line := map[string]any{"Priority": m.priority, "PayloadBase64": base64.StdEncoding.EncodeToString(m.body)}
	if m.identity == byMessageID {
		line["MessageID"] = keyOf(m.seq)
	}
	if m.order != "" {
		line["OrderingKey"] = m.order
	}
	b, err := json.Marshal(line)
	if err != nil {
		panic(err) // strings and a number
	}
	return append(b, '\n')
}

// postBatch sends messages of one channel once, records the answers, and returns the messages to
// send again.
func (p *producer) postBatch(posts []post, broker int) (again []post) {
	var body bytes.Buffer
	for i := range posts {
		body.Write(posts[i].line())
	}
	start := time.Now()
	for i, v := range p.askBatch(posts[0].channel, broker, &body, len(posts)) {
		m := posts[i]
		p.told(m, v, batchClient, broker, start)
		if m.identity != noIdentity && (v.status == 0 && v.verdict == unknown || v.status >= 500) {
			again = append(again, m)
		}
	}
	return again
}

// A lineVerdict is the answer to one message.
type lineVerdict struct {
	verdict string
	status  int // 0: no answer
	code    string
}

func (p *producer) askBatch(channel, broker int, body io.Reader, n int) []lineVerdict {
	out := make([]lineVerdict, n)
	fill := func(from int, v lineVerdict) []lineVerdict {
		for i := from; i < n; i++ {
			out[i] = v
		}
		return out
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+p.plan.Brokers[broker]+"/channel/"+p.plan.Channels[channel]+
		"/batch", body)
	if err != nil {
		return fill(0, lineVerdict{verdict: refused})
	}
	p.identify(req)
	req.Header.Set("Content-Type", "application/x-ndjson")
	p.under[broker].Add(1)
	defer p.under[broker].Add(-1)
	res, err := p.clients[broker].Do(req)
	if err != nil {
		verdict, _ := classifyError(err)
		return fill(0, lineVerdict{verdict: verdict})
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fill(0, overall(res))
	}
	lines := bufio.NewReader(res.Body)
	for i := range n {
		v, err := readLine(lines)
		if err != nil {
			return fill(i, v)
		}
		out[i] = v
	}
	return out
}

// overall reads an answer to the whole request, which has no answers to single lines.
func overall(res *http.Response) lineVerdict {
	var problem struct{ Code string }
	_ = json.NewDecoder(res.Body).Decode(&problem) // the status is enough
	return lineVerdict{classify(res.StatusCode, problem.Code), res.StatusCode, problem.Code}
}

// readLine reads the answer to one line of a batch. Without a readable answer the verdict is
// unknown.
func readLine(lines *bufio.Reader) (lineVerdict, error) {
	text, err := lines.ReadBytes('\n')
	var answer struct {
		Status int
		Code   string `json:"code"`
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return lineVerdict{verdict: unknown}, err
	}
	return lineVerdict{classify(answer.Status, answer.Code), answer.Status, answer.Code}, nil
}
