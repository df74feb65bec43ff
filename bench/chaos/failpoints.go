//go:build failpoint && unix

package chaos

const atPoints = true
