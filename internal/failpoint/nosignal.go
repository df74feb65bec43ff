//go:build !failpoint || !unix

package failpoint

// Built reports whether a signal can make this program kill itself at a point.
const Built = false
