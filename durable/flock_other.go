//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package durable

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockFolder cannot lock on this system: there SQLite's own locks keep the file
// whole, and running one broker per folder is up to the operator.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("durable: lock file: %w", err)
	}
	return f, nil
}
