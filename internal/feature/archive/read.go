package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An Entry is a file of the archive on a disk.
type Entry struct {
	Folder string
	Manifest
}

// Messages is the path of the file with the messages.
func (e *Entry) Messages() string { return filepath.Join(e.Folder, messagesName) }

// Open reads the manifest of a file. name is its folder, its messages or its manifest.
func Open(name string) (*Entry, error) {
	folder := name
	if base := filepath.Base(name); base == messagesName || base == manifestName {
		folder = filepath.Dir(name)
	}
	f, err := os.Open(filepath.Join(folder, manifestName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, err
	}
	m, err := readManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return &Entry{folder, m}, nil
}

// Find opens the files of the paths, in the order of their paths: a path is a file of the archive, or a folder
// with some below it. Folders that are being written are left out. skipped has the manifests that cannot be
// read, by path.
func Find(paths []string) (all []*Entry, skipped []error, err error) {
	for _, path := range paths {
		if e, err := Open(path); err == nil {
			all = append(all, e)
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		if _, err := os.Stat(path); err != nil {
			return nil, nil, err
		}
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && strings.HasPrefix(d.Name(), partial):
				return fs.SkipDir
			case d.IsDir() || d.Name() != manifestName:
				return nil
			}
			e, err := Open(name)
			if err != nil {
				skipped = append(skipped, err)
				return nil
			}
			all = append(all, e)
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return all, skipped, nil
}

// Verify compares the file with its manifest. ErrDamaged: they differ.
func (e *Entry) Verify(ctx context.Context) error {
	if err := verifyFile(ctx, e.Messages(), &e.Manifest); err != nil {
		return fmt.Errorf("%s: %w", e.Messages(), err)
	}
	return nil
}

// verifyFile compares the digest of a file, and the number and the IDs of its messages, with a manifest.
func verifyFile(ctx context.Context, name string, m *Manifest) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	var ids []ident.ID // first and last
	count := 0
	in := io.TeeReader(f, sum)
	err = readLines(ctx, in, func(line []byte) error {
		var head struct{ ID ident.ID }
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("%w: line %d is no message", ErrDamaged, count+1)
		}
		if count++; count == 1 {
			ids = []ident.ID{head.ID, head.ID}
		}
		ids[1] = head.ID
		return nil
	})
	if err == nil {
		_, err = io.Copy(io.Discard, in) // what follows the last frame counts for the digest
	}
	switch {
	case err != nil:
		return err
	case hex.EncodeToString(sum.Sum(nil)) != m.SHA256:
		return fmt.Errorf("%w: its SHA-256 is not that of the manifest", ErrDamaged)
	case count != m.Count || !slices.Equal(ids, []ident.ID{m.First, m.Last}):
		return fmt.Errorf("%w: it has other messages than the manifest says", ErrDamaged)
	}
	return nil
}

// maxLine bounds a line, bytes. A message of the largest size is far smaller, also in base64.
const maxLine = 1 << 30

// readLines calls f with each line of compressed text.
func readLines(ctx context.Context, in io.Reader, f func(line []byte) error) error {
	d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer d.Close()
	r := bufio.NewReaderSize(d, 64<<10)
	var line []byte
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		part, err := r.ReadSlice('\n')
		switch line = append(line, part...); {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) < maxLine:
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case err != nil: // a line without an end, too
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := f(line); err != nil {
			return err
		}
		line = line[:0]
	}
}

// Each calls f with each message of the file.
func (e *Entry) Each(ctx context.Context, f func(r *Record, line []byte) error) error {
	in, err := os.Open(e.Messages())
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	err = readLines(ctx, in, func(line []byte) error {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return f(&r, line)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", e.Messages(), err)
	}
	return nil
}
