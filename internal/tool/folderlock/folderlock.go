// Package folderlock keeps two processes from using one folder. The system ends a lock with its
// process, also when that is killed.
package folderlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrInUse means that another process has the folder.
var ErrInUse = errors.New("another process has the folder")

// Take locks a file in a folder until the file is closed. The error is ErrInUse where another
// process, or another caller in this one, has it.
func Take(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
