// Package privatefile creates files that only their owner may read, because they contain
// messages and tokens. The result depends neither on the umask nor on an earlier mode.
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

// Make creates an empty file. It removes the permissions of group and others from a file
// that exists. It does not change a path that is no regular file, such as a terminal.
func Make(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return Tighten(path)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(fileMode), f.Close()) // the umask may have removed the owner's permissions
}

// Tighten removes the permissions of group and others from a regular file. A file that does
// not exist is no error.
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
		return fmt.Errorf("other users may read the file, and its permissions cannot be changed: %w", err)
	}
	return nil
}

// Folder creates a folder that only its owner may enter, and its parents. It does not change
// a folder that exists: other users may need it.
func Folder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(path, folderMode); err != nil {
		return err
	}
	return os.Chmod(path, folderMode)
}
