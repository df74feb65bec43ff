package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// A consumerBooks is what the broker says of one consumer in the answer of its route reconcile.
type consumerBooks struct {
	ConsumerID                                                     string
	Accepted, Delivered, Queued, InFlight, Dead, Expired, Filtered int64
	Balanced                                                       bool
	Difference                                                     int64
}

// Books reads the books of the consumers of a channel. A broker without the route has none.
func (c *Control) Books(ctx context.Context, channel string) ([]consumerBooks, error) {
	status, body, err := c.do(ctx, http.MethodGet, "/channel/"+channel+"/reconcile", nil)
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return nil, nil
	}
	var answer struct{ Result []consumerBooks }
	if status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
		return nil, fmt.Errorf("read the books: %w", statusError{status, clip(body, 300)})
	}
	return answer.Result, nil
}

// balance adds the books of all channels to the verdict.
func (w *window) balance(ctx context.Context, v *Verdict) {
	for _, channel := range w.subject.channels {
		all, err := w.control.Books(ctx, channel)
		if err != nil {
			w.failed("the books cannot be read", []byte(err.Error()))
			continue
		}
		for _, b := range all {
			if b.Balanced {
				v.Books++
				continue
			}
			if v.Askew++; v.Askew <= maxListed {
				v.Offenders = append(v.Offenders, fmt.Sprintf("books: consumer %s differs by %d: %+v", b.ConsumerID,
					b.Difference, b))
			}
		}
	}
}
