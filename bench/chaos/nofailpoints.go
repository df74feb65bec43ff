//go:build !failpoint || !unix

package chaos

// atPoints reports whether the brokers can be killed at a failpoint: they are built with the tag
// that this program is built with.
const atPoints = false
