//go:build !unix

package egress

// quiet cannot look without waiting here, so every idle connection counts as good.
func quiet(uintptr) bool { return true }
