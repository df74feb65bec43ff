package preflight

import (
	"golang.org/x/sys/unix"
)

func diskOf(dir string) disk {
	d := disk{writable: unix.Access(dir, unix.W_OK|unix.X_OK), free: -1, inodes: true}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		d.free = int64(fs.Bavail) * fs.Bsize
		d.inodes = fs.Files == 0 || fs.Ffree > 0 // some file systems count none
		d.memory = fs.Type == unix.TMPFS_MAGIC
	}
	return d
}
