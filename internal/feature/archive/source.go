package archive

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Source is where files of the archive are read from, by name.
type Source interface {
	// Open returns the bytes of an object. fs.ErrNotExist: there is none of that name.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Manifests calls f with the name of each manifest below a name, in order, up to the first error of f.
	// fs.ErrNotExist: there is nothing below the name.
	Manifests(ctx context.Context, below string, f func(name string) error) error
}

// A disk is the file system. The names are paths.
type disk struct{}

func (disk) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Clean(name))
}

func (disk) Manifests(ctx context.Context, below string, f func(name string) error) error {
	if _, err := os.Stat(below); err != nil {
		return err
	}
	return filepath.WalkDir(below, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && strings.HasPrefix(d.Name(), partial):
			return fs.SkipDir
		case d.IsDir() || d.Name() != manifestName:
			return nil
		}
		return f(name)
	})
}
