package servers

import (
	"os"
	"regexp"
	"strconv"
	"syscall"
)

const (
	memoryDir   = "/dev/shm"
	memoryMagic = 0x01021994 // TMPFS_MAGIC of the kernel
)

// MemoryFolder returns a new folder whose files are in memory and, like the folders of servers,
// vanish with this process. It returns "" where this system has no such file system with least
// free bytes, or less memory than that is available.
func MemoryFolder(least uint64) string {
	var fs syscall.Statfs_t
	if syscall.Statfs(memoryDir, &fs) != nil || int64(fs.Type) != memoryMagic || fs.Bavail*uint64(fs.Bsize) < least {
		return ""
	}
	if availableMemory() < least {
		return ""
	}
	f, err := newFolderIn(memoryDir)
	if err != nil {
		return "" // not ours to write
	}
	memoryFolders = append(memoryFolders, f)
	return f.path
}

// memoryFolders keeps the pipes to the janitors reachable.
var memoryFolders []*folder

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable: +([0-9]+) kB$`)

// availableMemory is how many bytes programs may take before the system is short of memory.
func availableMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	m := memAvailable.FindSubmatch(text)
	if m == nil {
		return 0
	}
	kib, err := strconv.ParseUint(string(m[1]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
