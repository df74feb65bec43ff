package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// scrape reads both pages of metrics each Scrape until ctx ends, as Prometheus does. It returns the first
// failure: a run without its scrapes measures something else.
func (w *window) scrape(ctx context.Context) (failure error) {
	if w.config.Scrape <= 0 {
		return nil
	}
	tick := time.NewTicker(w.config.Scrape)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return failure
		case <-tick.C:
		}
		for _, page := range []string{"/metrics", "/metrics/consumers"} {
			status, _, err := w.control.do(ctx, http.MethodGet, page, nil)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("bench: %s answers %d", page, status)
			}
			if failure == nil && ctx.Err() == nil {
				failure = errors.Join(failure, err)
			}
		}
	}
}
