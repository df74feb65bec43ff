package intake

import "github.com/penstock-broker/penstock/internal/tool/share"

// maxWaiters is the most clients that wait at one broker.
const maxWaiters = 20_000

// NewWaiters returns the bound of clients that wait at a broker: for jobs under the key of the
// consumer, for responses under that of whoever asks. One place is one client.
func NewWaiters() *share.Bound { return share.New(share.Options{Name: "waiters", Most: maxWaiters}) }
