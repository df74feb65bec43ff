//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// books asks the brokers in turn for the books of each channel, and returns the consumers of which
// they do not balance.
func (r *rig) books(ctx context.Context) (askew []string, err error) {
	for i, channel := range r.plan.Channels {
		url := "http://" + r.nodes[i%len(r.nodes)].addr + "/channel/" + channel + "/reconcile"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("X-Broker-Admin-Token", adminToken)
		res, err := control.Do(req)
		if err != nil {
			return nil, fmt.Errorf("read the books: %w", err)
		}
		var answer struct{ Result []json.RawMessage }
		err = json.NewDecoder(res.Body).Decode(&answer)
		_, _ = io.Copy(io.Discard, res.Body) // the bytes after the object are not needed
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || len(answer.Result) == 0 {
			return nil, fmt.Errorf("read the books: status %d: %w", res.StatusCode, err)
		}
		for _, of := range answer.Result {
			var b struct{ Balanced bool }
			if err := json.Unmarshal(of, &b); err != nil {
				return nil, fmt.Errorf("read the books: %w", err)
			}
			if !b.Balanced {
				askew = append(askew, channel+": "+string(of))
			}
		}
	}
	return askew, nil
}
