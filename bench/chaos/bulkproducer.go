//go:build unix

package chaos

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// bulkEvery is how many posts there are for each bulk of bulkLines.
	bulkEvery = 160
	bulkLines = 60
	// bulkClient names the client of bulks, as a Try does.
	bulkClient = "bulk"
)

// bulk posts several messages as one bulk. A 202 promises that each becomes a message. It posts a
// bulk again, with the messages that have an ID, until its answer is definite.
func (p *producer) bulk(ctx context.Context, rng *rand.Rand) {
	channel := p.channel(rng)
	if p.plan.orderingKey(channel, 0) != "" { // the order of a bulk and of other posts is not known
		channel = 0
	}
	posts, intent := p.several(rng, channel, bulkLines)
	if intent.Wait() != nil {
		return
	}
	stop, cancel := lateContext(ctx, finishWithin)
	defer cancel()
	again := p.postBulk(posts, p.pick(rng.IntN(len(p.plan.Brokers))))
	for len(again) > 0 && p.repeat(stop, rng, again...) {
		again = p.postBulk(again, p.pick(rng.IntN(len(p.plan.Brokers))))
	}
}

// postBulk sends messages of one channel as a bulk, records the answer, and returns the messages to
// send again.
func (p *producer) postBulk(posts []post, broker int) (again []post) {
	var body bytes.Buffer
	for i := range posts {
		body.Write(posts[i].line())
	}
	start := time.Now()
	v := p.askBulk(posts[0].channel, broker, &body)
	for _, m := range posts {
		p.told(m, v, bulkClient, broker, start)
	}
	if v.status == 0 && v.verdict == unknown || v.status >= 500 {
		again = keyed(posts)
	}
	return again
}

func (p *producer) askBulk(channel, broker int, body io.Reader) lineVerdict {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.plan.Brokers[broker]+"/channel/"+p.plan.Channels[channel]+
		"/bulk", body)
	if err != nil {
		return lineVerdict{verdict: refused}
	}
	p.identify(req)
	req.Header.Set("Content-Type", "application/x-ndjson")
	p.under[broker].Add(1)
	defer p.under[broker].Add(-1)
	res, err := p.clients[broker].Do(req)
	if err != nil {
		verdict, _ := classifyError(err)
		return lineVerdict{verdict: verdict}
	}
	defer res.Body.Close()
	return overall(res)
}
