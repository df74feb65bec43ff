package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
)

// putTimeout bounds what one file may take: its upload, and reading it back. A file has about maxLines bytes, so a
// store that takes less than 250 kB a second counts as one that is away.
const putTimeout = 10 * time.Minute

// probeTimeout bounds a probe.
const probeTimeout = 30 * time.Second

// A Bucket is a place in an S3-compatible store. Files are written on a local disk first.
type Bucket struct {
	store *S3
	spool Dir
	away  atomic.Bool // the last file was not taken
}

// NewBucket returns the place of a store. spool is a local folder, which other brokers may share.
func NewBucket(store *S3, spool string) *Bucket { return &Bucket{store: store, spool: Dir(spool)} }

// Begin implements Place. After a file that the store did not take it asks the store first, so that nothing is
// read and written for a store that is away.
func (b *Bucket) Begin(ctx context.Context, channel string) (string, error) {
	if b.away.Load() {
		if err := b.store.Probe(ctx); err != nil && !errors.Is(err, ErrNoDelete) {
			return "", err
		}
		b.away.Store(false)
	}
	return b.spool.Begin(ctx, channel)
}

// Put implements Place. It uploads the messages, reads them back and compares them with the manifest, and
// uploads the manifest last. So a manifest that is there is one of messages that were read back. After an error
// there may be messages without a manifest, which are no part of the archive, or, where the last answer was
// lost, a whole file.
func (b *Bucket) Put(ctx context.Context, folder string, m *Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	err := b.put(ctx, folder, m)
	b.away.Store(err != nil)
	if err == nil {
		err = os.RemoveAll(folder)
	}
	return err
}

func (b *Bucket) put(ctx context.Context, folder string, m *Manifest) error {
	text, err := os.ReadFile(filepath.Join(folder, manifestName))
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(folder, messagesName))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	to := Entry{Folder: b.store.name(m.Channel + "/" + m.name()), Manifest: *m, in: b.store}
	err = b.store.put(ctx, to.Messages(), f, m.Bytes, "application/zstd")
	if err == nil {
		if err = to.Verify(ctx); err != nil {
			err = fmt.Errorf("what was written is not what is read back: %w", err)
		}
	}
	if err != nil {
		b.store.remove(ctx, to.Messages())
		return err
	}
	manifest := to.Folder + "/" + manifestName
	if err := b.store.put(ctx, manifest, bytes.NewReader(text), int64(len(text)), "application/json"); err != nil {
		return err // it may be there all the same, and the messages then are
	}
	switch back, err := Open(ctx, b.store, to.Folder); {
	case err != nil:
		return fmt.Errorf("the manifest cannot be read back: %w", err)
	case !same(&back.Manifest, m):
		b.store.remove(ctx, manifest)
		return differs(manifest)
	}
	return nil
}

// same reports whether two manifests are written alike.
func same(a, b *Manifest) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// put uploads an object in one request, which either is there as a whole or is not. The memory is bounded: a
// repeat reads the bytes again.
func (s *S3) put(ctx context.Context, name string, in io.ReadSeeker, size int64, kind string) error {
	bucket, key, err := split(name)
	if err != nil {
		return err
	}
	o := minio.PutObjectOptions{ContentType: kind, DisableMultipart: true, SendContentMd5: !s.Trailers,
		DisableContentSha256: s.Trailers} // the client adds the trailer to a body that is not signed
	if _, err := s.client.PutObject(ctx, bucket, key, in, size, o); err != nil {
		return fmt.Errorf("%s is not written: %w", name, told(err))
	}
	return nil
}

// removeTimeout bounds what a stop waits for the end of an object that was not read back.
const removeTimeout = 3 * time.Second

// remove removes an object, as far as the store lets it.
func (s *S3) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_ = s.delete(ctx, name)
}

func (s *S3) delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	bucket, key, err := split(name)
	if err != nil {
		return err
	}
	if err := s.client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("%s is not removed: %w", name, told(err))
	}
	return nil
}

// ErrNoDelete means that an archive works, but objects cannot be removed: rights, or a lock on the bucket.
var ErrNoDelete = errors.New("objects are written and read, and cannot be removed")

// Probe writes a small object, reads it back, and removes it.
func (s *S3) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	text := []byte("a probe of the archive: " + rand.Text())
	name := s.name("+probe-" + rand.Text())
	if err := s.put(ctx, name, bytes.NewReader(text), int64(len(text)), "text/plain"); err != nil {
		return err
	}
	err := s.holds(ctx, name, text)
	gone := s.delete(ctx, name) // also where it was not read back
	switch {
	case err != nil:
		return err
	case gone != nil:
		return fmt.Errorf("%w: %w", ErrNoDelete, gone)
	}
	return nil
}

// differs is the error of an object that is not read back as it was written.
func differs(name string) error {
	return fmt.Errorf("%s: %w: it is not what was written", name, ErrDamaged)
}

// holds reads an object and compares it.
func (s *S3) holds(ctx context.Context, name string, text []byte) error {
	f, err := s.Open(ctx, name)
	if err != nil {
		return err
	}
	back, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s is not read back: %w", name, err)
	}
	if !bytes.Equal(back, text) {
		return differs(name)
	}
	return nil
}
