package penstock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	mostLines      = 1000    // of one request
	mostBatchBytes = 4 << 20 // of one request, or one line
)

// A Result is what became of one message of PublishMany: Err is nil for a message that the broker has.
type Result struct {
	Receipt
	Err error
}

// PublishMany publishes messages in as few requests as possible, and returns a result for each, in their
// order. One bad message never fails another. The error is that of the first message that failed.
func (c *Client) PublishMany(ctx context.Context, channel string, ms []Message) ([]Result, error) {
	return c.publishMany(ctx, role{channel: channel}, ms)
}

// EnqueueMany is PublishMany for jobs of a queue, see Enqueue.
func (c *Client) EnqueueMany(ctx context.Context, queue string, jobs []Job) ([]Result, error) {
	ms := make([]Message, len(jobs))
	for i := range jobs {
		var err error
		if ms[i], err = jobs[i].message(); err != nil {
			return nil, err
		}
	}
	return c.publishMany(ctx, role{channel: queue, makeConsumer: queue}, ms)
}

func (c *Client) publishMany(ctx context.Context, r role, ms []Message) ([]Result, error) {
	results := make([]Result, len(ms))
	lines := make([][]byte, len(ms))
	for i, m := range ms {
		if m.ID == "" {
			m.ID = newID()
		}
		results[i].MessageID = m.ID
		if lines[i], results[i].Err = m.line(); results[i].Err != nil {
			lines[i] = nil
		}
	}
	for from := 0; from < len(lines); {
		to, size := from, 0
		for to < len(lines) && to-from < mostLines && (to == from || size+len(lines[to]) < mostBatchBytes) {
			size += len(lines[to]) + 1
			to++
		}
		c.publishPart(ctx, r, lines[from:to], results[from:to])
		from = to
	}
	for i := range results {
		if results[i].Err != nil {
			return results, fmt.Errorf("message %q: %w", results[i].MessageID, results[i].Err)
		}
	}
	return results, nil
}

// publishPart publishes the lines of one request. Those without an answer, and those whose answer says
// later, go again.
func (c *Client) publishPart(ctx context.Context, r role, lines [][]byte, results []Result) {
	open := make([]int, 0, len(lines))
	for i := range lines {
		if lines[i] != nil {
			open = append(open, i)
		}
	}
	err := again(ctx, c.o.Tries, func() error {
		return c.act(ctx, r, func(h http.Header) error {
			if len(open) == 0 {
				return nil
			}
			var body bytes.Buffer
			for _, i := range open {
				body.Write(lines[i])
				body.WriteByte('\n')
			}
			h.Set("Content-Type", "application/x-ndjson")
			q := call{method: http.MethodPost, path: channelPath(r.channel) + "/batch", header: h, body: body.Bytes(),
				wait: 2 * time.Second * time.Duration(1+body.Len()>>20)}
			later, err := c.sendLines(ctx, q, open, results)
			open = later
			return err
		})
	})
	for _, i := range open { // no request was sent for these: the tokens could not be had
		if results[i].Err == nil {
			results[i].Err = err
		}
	}
}

// sendLines sends a batch and reads what it is answered. later are the lines to send again, err is why.
func (c *Client) sendLines(ctx context.Context, q call, open []int, results []Result) (later []int, err error) {
	a, err := c.once(ctx, q)
	if err != nil {
		for _, i := range open {
			results[i].Err = err
		}
		return open, err
	}
	answers := json.NewDecoder(bytes.NewReader(a.body))
	for n, i := range open {
		var line struct {
			Status                      int
			Code, Detail, Location, Ack string
			Taken                       *int64
			MessageID                   string
		}
		if err := answers.Decode(&line); err != nil {
			err = q.failed(fmt.Errorf("the answer to message %d of %d cannot be read: %w", n+1, len(open), err))
			for _, rest := range open[n:] {
				results[rest].Err = err
			}
			return append(later, open[n:]...), err
		}
		e := q.failed(nil)
		e.Status, e.Code, e.Detail = line.Status, line.Code, line.Detail
		done := line.Status == 200 || line.Status == 201 || line.Status == 202
		switch {
		case line.Taken != nil: // the batch ends here
			for _, rest := range open[n:] {
				results[rest].Err = e
			}
			return append(later, open[n:]...), e
		case done || line.Code == "duplicate_message_id":
			results[i].Receipt = Receipt{MessageID: results[i].MessageID, Location: line.Location, Ack: line.Ack,
				Duplicate: line.Status == 200 || !done}
			results[i].Err = nil
		default:
			results[i].Err = e
			if e.Temporary() {
				later, err = append(later, i), e
			}
		}
	}
	return later, err
}
