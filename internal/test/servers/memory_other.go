//go:build unix && !linux

package servers

// MemoryFolder returns "": only Linux has a folder in memory everywhere.
func MemoryFolder(uint64) string { return "" }
