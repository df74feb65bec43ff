package bulk

import (
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// StateOf is the state of a bulk as clients see it.
func StateOf(b *durable.Bulk) string {
	switch {
	case b.Paused && !b.State.Over():
		return apitype.BulkPaused
	case b.State == durable.BulkFetching:
		return apitype.BulkFetching
	case b.State == durable.BulkDone:
		return apitype.BulkDone
	case b.State == durable.BulkCancelled:
		return apitype.BulkCancelled
	case b.State == durable.BulkFailed:
		return apitype.BulkFailed
	}
	return apitype.BulkRunning
}
