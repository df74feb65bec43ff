//go:build !unix

package bench

// chaosCommands is empty where there are no signals to break things with.
func chaosCommands() map[string]command { return nil }
