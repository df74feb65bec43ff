package accept

import (
	"errors"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// tellRejected logs why the store rejects a line of a batch request, once for each transaction,
// because the answer of the line does not contain the reason. A single publish that is refused is
// logged with its answer.
func (c *committer) tellRejected(batch []*write, results []error) {
	for i, err := range results {
		if batch[i].of.lines && errors.Is(err, durable.ErrRejected) {
			ctx := batch[i].of.ctx
			c.log.WarnContext(ctx, "the store rejects a line of a batch", "message", batch[i].msg.PublicID(), "request_id",
				request.ID(ctx), "error", err)
			return
		}
	}
}
