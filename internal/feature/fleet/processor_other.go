//go:build !unix

package fleet

import "time"

// processorTime is not known.
func processorTime() time.Duration { return 0 }
