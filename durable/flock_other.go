//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockFolder does not lock on this system. SQLite's own locks protect the file, and the
// operator must ensure that only one broker uses the folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("durable: lock file: %w", err)
	}
	return f, nil
}
