package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

// A Place is where files of the archive are.
type Place interface {
	// Begin makes a new folder on a local disk, in which a file is written.
	Begin(ctx context.Context, channel string) (folder string, err error)
	// Put makes the folder a part of the archive, flushed, under the name of m, and the folder ends.
	Put(ctx context.Context, folder string, m *Manifest) error
}

// partial begins the names of folders that are being written, or were when their broker stopped. No channel
// may have such a name.
const partial = "+partial-"

// staleAfter is the age at which such a folder is of a broker that stopped. A file is written in a few
// minutes, and its last write is no older than a page of messages.
const staleAfter = time.Hour

// A Dir is a folder with the archive: a folder for each channel, with one for each file. Several brokers may
// have the same one.
type Dir string

// Begin removes what brokers that stopped have left in the channel, and makes a folder there.
func (d Dir) Begin(_ context.Context, channel string) (string, error) {
	of := filepath.Join(string(d), channel)
	if err := privatefile.Folder(of); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(of)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), partial) && stale(of, info) {
			if err := os.RemoveAll(filepath.Join(of, e.Name())); err != nil {
				return "", err
			}
		}
	}
	folder := filepath.Join(of, partial+rand.Text())
	return folder, os.Mkdir(folder, 0o700)
}

// stale reports whether nothing was written to a folder for long.
func stale(of string, info fs.FileInfo) bool {
	newest := info.ModTime()
	if in, err := os.Stat(filepath.Join(of, info.Name(), messagesName)); err == nil && in.ModTime().After(newest) {
		newest = in.ModTime()
	}
	return time.Since(newest) > staleAfter
}

// Put gives the folder its name, which begins with the time of its oldest message.
func (d Dir) Put(_ context.Context, folder string, m *Manifest) error {
	to := filepath.Join(string(d), m.Channel, m.name())
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", to, fs.ErrExist)
	}
	if err := os.Rename(folder, to); err != nil {
		return err
	}
	for _, name := range []string{filepath.Dir(to), string(d)} { // the folder of the channel may be new
		if err := syncFolder(name); err != nil {
			return errors.Join(err, os.RemoveAll(to))
		}
	}
	return nil
}

// name is that of the folder of a file: files of a channel sort by time. Two files of the same messages have
// different digests in it where they differ, and otherwise different random parts.
func (m *Manifest) name() string {
	return m.From.UTC().Format("20060102T150405.000Z") + "-" + m.First.String() + "-" + rand.Text()[:8]
}
