package journal

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft-wal/types"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A disk is the files of a journal, for the segments of package raft-wal. Only their owner may
// read them. It allocates nothing ahead: an idle journal takes no room.
type disk struct {
	fault func(operation string) error // of tests; nil: none
}

// ListDir implements types.VFS.
func (disk) ListDir(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	names := make([]string, 0, len(all))
	for _, f := range all {
		if !f.IsDir() {
			names = append(names, f.Name())
		}
	}
	return names, err
}

// Create implements types.VFS. The folder is flushed with the first flush of the file: until then
// nothing in it was answered.
func (d disk) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &file{File: f, dir: dir, fault: d.fault}, nil
}

// Delete implements types.VFS. A deletion that a power loss undoes does no harm: the entries are
// drained once more, and found stored.
func (disk) Delete(dir, name string) error { return os.Remove(filepath.Join(dir, name)) }

// Size implements Files.
func (disk) Size(dir, name string) (int64, error) {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Rename implements Files.
func (disk) Rename(dir, from, to string) error {
	return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to))
}

// Truncate implements Files.
func (disk) Truncate(dir, name string, size int64) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// OpenReader implements types.VFS.
func (disk) OpenReader(dir, name string) (types.ReadableFile, error) {
	return os.Open(filepath.Join(dir, name))
}

// OpenWriter implements types.VFS. A segment that is opened again is only read.
func (disk) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &file{File: f}, nil
}

// A file is a segment. After a failed write or flush its end is cut off, as far as the disk still
// allows: what the system reports as written then may never reach the disk, and no later flush
// proves the contrary.
type file struct {
	*os.File
	dir   string // to be flushed with the first flush
	fault func(operation string) error

	mu      sync.Mutex
	end     int64 // of what was written
	flushed int64 // of what is on disk
	broken  bool
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	if err == nil && f.fault != nil {
		err = f.fault("write")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = max(f.end, at+int64(n))
	if err != nil {
		err = errors.Join(err, f.cut())
	}
	return n, err
}

// Sync implements types.WritableFile.
func (f *file) Sync() error {
	failpoint.At(failpoint.JournalWritten)
	err := f.File.Sync()
	if err == nil && f.fault != nil {
		err = f.fault("flush")
	}
	if err == nil && f.dir != "" {
		err = syncFolder(f.dir)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return errors.Join(err, f.cut())
	}
	f.dir, f.flushed = "", f.end
	return nil
}

// cut removes what is not known to be on disk. ErrUnsure means that it may still be there. It needs
// f.mu.
func (f *file) cut() error {
	f.broken = true
	err := f.File.Truncate(f.flushed)
	if err == nil {
		err = f.File.Sync()
	}
	if err != nil {
		return errors.Join(ErrUnsure, err)
	}
	return nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
