// Package privatefile makes files that only their owner may read, whatever the
// umask says and whatever they were before. Messages and tokens are in them.
package privatefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	fileMode   fs.FileMode = 0o600
	folderMode fs.FileMode = 0o700
	others     fs.FileMode = 0o077
)

// Make creates an empty file unless there is one, and takes the rights of others
// from one that is there. What is no regular file, such as a terminal, stays as it is.
func Make(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return Tighten(path)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(fileMode), f.Close()) // the umask may have taken too much
}

// Tighten takes the rights of others from a regular file; one that is not there is
// no error.
func Tighten(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&others == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&^others); err != nil {
		return fmt.Errorf("others may read it, and that cannot be changed: %w", err)
	}
	return nil
}

// Folder creates a folder, with those above it, that only its owner may enter. One
// that is there stays as it is: others may have business in it.
func Folder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(path, folderMode); err != nil {
		return err
	}
	return os.Chmod(path, folderMode)
}
