//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
)

// books asks the brokers in turn for the books of each channel, and returns the consumers of which
// they do not balance.
func (r *rig) books(ctx context.Context) (askew []string, err error) {
	for i, channel := range r.plan.Channels {
		var answer struct{ Result []json.RawMessage }
		err := administrator("http://"+r.nodes[i%len(r.nodes)].addr).Read(ctx, "/channel/"+channel+"/reconcile", nil, &answer)
		if err != nil || len(answer.Result) == 0 {
			return nil, fmt.Errorf("read the books: %d of them: %w", len(answer.Result), err)
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
