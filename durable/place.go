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

// InPlace returns an error if the database of the embedded store, or its lock, is no longer the
// file at its path. Writes then go to a file that no later start finds, or a second process may
// write to the database as well, and no statement fails because of that. MySQL is always in place.
func (s *Store) InPlace() error {
	for _, file := range s.files {
		now, err := os.Stat(file.path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(file.was, now) {
			return fmt.Errorf("durable: %s was removed, renamed or replaced while it was in use", file.path)
		} // other errors do not show a change of the file
	}
	return nil
}
