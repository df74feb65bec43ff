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
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An Entry is a file of the archive.
type Entry struct {
	Folder string // its path, or s3://BUCKET/KEY
	Manifest
	in Source
}

// Messages is the name of the file with the messages.
func (e *Entry) Messages() string { return e.Folder + "/" + messagesName }

// folderOf returns the name of the folder that a name means: the folder itself, or one of its two files.
func folderOf(name string) string {
	name = strings.TrimSuffix(name, "/")
	for _, file := range []string{messagesName, manifestName} {
		if name == file {
			return "."
		}
		if folder, ok := strings.CutSuffix(name, "/"+file); ok {
			return folder
		}
	}
	return name
}

// Open reads the manifest of a file. name is its folder, its messages or its manifest.
func Open(ctx context.Context, in Source, name string) (*Entry, error) {
	folder := folderOf(name)
	f, err := in.Open(ctx, folder+"/"+manifestName)
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
		return nil, fmt.Errorf("%s/%s: %w", folder, manifestName, err)
	}
	return &Entry{folder, m, in}, nil
}

// Find opens the files of the names, in their order: a name is a path, or s3://BUCKET/KEY, of a file of the
// archive, or of a folder with some below it. Folders that are being written are left out. store is for names
// in a store and may be nil. skipped has the manifests that cannot be read.
func Find(ctx context.Context, store *S3, names []string) (all []*Entry, skipped []error, err error) {
	for _, name := range names {
		var in Source = disk{}
		if IsS3(name) {
			if store == nil {
				return nil, nil, fmt.Errorf("%s: the settings name no S3-compatible store", name)
			}
			if _, _, err := split(name); err != nil {
				return nil, nil, err
			}
			in = store
		} else {
			name = filepath.Clean(name)
		}
		if e, err := Open(ctx, in, name); err == nil {
			all = append(all, e)
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		err := in.Manifests(ctx, name, func(name string) error {
			e, err := Open(ctx, in, name)
			switch {
			case err == nil:
				all = append(all, e)
			case ctx.Err() != nil:
				return ctx.Err()
			default:
				skipped = append(skipped, err)
			}
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
	if err := verify(ctx, e.in, e.Messages(), &e.Manifest); err != nil {
		return fmt.Errorf("%s: %w", e.Messages(), err)
	}
	return nil
}

// verify compares the digest of a file, and the number and the IDs of its messages, with a manifest.
func verify(ctx context.Context, from Source, name string, m *Manifest) error {
	f, err := from.Open(ctx, name)
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
	from := &source{Reader: in}
	d, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
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
		case from.failed != nil:
			return from.failed
		case err != nil: // a line without an end, too
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := f(line); err != nil {
			return err
		}
		line = line[:0]
	}
}

// A source keeps the error of a disk or a store apart from those of damaged bytes.
type source struct {
	io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// Each calls f with each message of the file.
func (e *Entry) Each(ctx context.Context, f func(r *Record, line []byte) error) error {
	in, err := e.in.Open(ctx, e.Messages())
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
