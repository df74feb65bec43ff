//go:build !failpoint || !unix

package failpoint

// Built reports whether this program can be told to kill itself at a point.
const Built = false

// EnvOrder means nothing to this program.
const EnvOrder = "PENSTOCK_FAILPOINT_ORDER"
