//go:build !failpoint || !unix

package failpoint

// Built reports whether this program can be told to kill itself at a point.
const Built = false
