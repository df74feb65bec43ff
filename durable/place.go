package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// A place is a path with the file that was there when it was opened.
type place struct {
	path string
	was  fs.FileInfo
}

func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	return place{path, info}, err
}

// InPlace returns an error when the database of the embedded store, or its lock,
// is not any more the file at its path. What is written then is flushed to a file
// that no later start will find, or a second process may write, too; no statement
// fails of it. MySQL is always in place.
func (s *Store) InPlace() error {
	for _, file := range s.files {
		now, err := os.Stat(file.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file.was, now) {
			return fmt.Errorf("durable: %s was removed, renamed or replaced while it was in use", file.path)
		} // another error tells nothing about the file
	}
	return nil
}
