//go:build !linux

package preflight

import "os"

// diskOf knows little on this system.
func diskOf(dir string) disk {
	d := disk{free: -1, inodes: true}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o200 == 0 {
		d.writable = os.ErrPermission
	}
	return d
}
