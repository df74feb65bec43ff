package penstock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Bulk is many messages in one body, as the broker shows it.
type Bulk struct {
	ID, State, Reason, Format              string // State: FETCHING, RUNNING, PAUSED, DONE, CANCELLED or FAILED
	Total, Published, Rejected, Duplicates int64  // rows
	Delivered, Open, Dead                  int64  // jobs
	Counting                               bool
	EstimatedEnd                           *time.Time
	BadRows                                []struct {
		Row    int64
		Reason string
	}
}

// PublishBulk sends a body of any length, NDJSON (application/x-ndjson) or CSV (text/csv) with the members of
// batch lines, and returns the path of the bulk when the broker has all of it on disk. Its rows become
// messages afterwards. The body is read once and the request is not repeated: if its outcome is unknown
// (Status 0 or 503 outcome_unknown), rows with a MessageID can be sent again.
//
// The time-out of the client does not count here: the context bounds the request.
func (c *Client) PublishBulk(ctx context.Context, channel, contentType string, body io.Reader) (path string,
	err error) {
	h, err := c.keys(ctx, role{channel: channel})
	if err != nil {
		return "", err
	}
	q := call{method: http.MethodPost, path: channelPath(channel) + "/bulk"}
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, body)
	if err != nil {
		return "", q.failed(err)
	}
	h.Set("Content-Type", contentType)
	h.Set("User-Agent", "penstock-go/"+Version)
	req.Header = h
	res, err := c.http.Do(req)
	if err != nil {
		return "", q.failed(unwrapped(ctx, err))
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(res.Body, mostError))
	switch path = res.Header.Get("Location"); {
	case res.StatusCode/100 != 2:
		return "", q.refused(res, text)
	case !strings.HasPrefix(path, "/"):
		return "", q.failed(fmt.Errorf("the answer %d has no Location of a broker", res.StatusCode))
	}
	return path, nil
}

// Bulk reads a bulk of this producer.
func (c *Client) Bulk(ctx context.Context, channel, path string) (b Bulk, err error) {
	err = c.scheduled(ctx, channel, call{method: http.MethodGet, path: path}, nil, &b)
	return b, err
}

// ErrBulkEnded: a bulk was cancelled or failed, see its Reason.
var ErrBulkEnded = errors.New("penstock: the bulk was cancelled or failed")

// AwaitBulk reads a bulk again and again until all its rows are messages. ErrBulkEnded: some are not.
func (c *Client) AwaitBulk(ctx context.Context, channel, path string) (Bulk, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		b, err := c.Bulk(ctx, channel, path)
		switch {
		case err != nil || b.State == "DONE":
			return b, err
		case b.State == "CANCELLED" || b.State == "FAILED":
			return b, fmt.Errorf("%w: %s %s", ErrBulkEnded, b.State, b.Reason)
		case !rest(ctx, wait):
			return b, ctx.Err()
		}
	}
}
