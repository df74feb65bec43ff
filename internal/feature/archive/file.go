package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Bounds of one file. A file takes at most what is read from the store at once, or one message, more.
const (
	maxMessages = 50_000
	maxLines    = 64 << 20 // bytes before compression
)

// maxWindow bounds the memory of the compression, bytes.
const maxWindow = 1 << 20

// A File is a file of the archive that is being written. It is not safe for concurrent use.
type File struct {
	place  Place
	folder string // where it is written
	out    *os.File
	sum    hash.Hash
	zip    *zstd.Encoder
	lines  *bufio.Writer
	m      Manifest
	failed error // of a write; the file cannot be sealed any more
}

// Begin makes a new file for messages of a channel.
func Begin(ctx context.Context, place Place, channel string) (*File, error) {
	folder, err := place.Begin(ctx, channel)
	if err != nil {
		return nil, err
	}
	f := &File{place: place, folder: folder, sum: sha256.New(),
		m: Manifest{Version: formatVersion, Channel: channel, File: messagesName}}
	f.out, err = os.OpenFile(filepath.Join(folder, messagesName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		f.zip, err = zstd.NewWriter(io.MultiWriter(f.out, f.sum), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(maxWindow))
	}
	if err != nil {
		f.Abandon()
		return nil, err
	}
	f.lines = bufio.NewWriterSize(f.zip, 64<<10)
	return f, nil
}

// Add writes a message. Messages are added in the order of their IDs. See recordOf for consumers and states.
func (f *File) Add(m *durable.Message, producer string, consumers []string, states []durable.JobState) error {
	if f.failed != nil {
		return f.failed
	}
	line, err := json.Marshal(recordOf(m, f.m.Channel, producer, consumers, states))
	if err == nil {
		line = append(line, '\n')
		_, err = f.lines.Write(line)
	}
	if err != nil {
		f.failed = err
		return err
	}
	if f.m.Count == 0 {
		f.m.First = m.ID
	}
	f.m.Last = m.ID
	f.m.Count++
	f.m.Lines += int64(len(line))
	return nil
}

// Full reports whether the file has as much as one file is to have.
func (f *File) Full() bool { return f.m.Count >= maxMessages || f.m.Lines >= maxLines }

// Seal ends the file: when it returns nil, the archive has the messages, and they were read back. After an
// error a folder has nothing of it, and a Bucket no manifest, unless the answer to the last request was lost.
func (f *File) Seal(ctx context.Context) error {
	if err := f.seal(ctx); err != nil {
		f.Abandon()
		return fmt.Errorf("a file of the archive is not written: %w", err)
	}
	return nil
}

func (f *File) seal(ctx context.Context) error {
	if f.failed != nil {
		return f.failed
	}
	if f.m.Count == 0 {
		return errors.New("it has no message")
	}
	if err := errors.Join(f.lines.Flush(), f.zip.Close(), f.out.Sync()); err != nil {
		return err
	}
	if err := f.out.Close(); err != nil {
		return err
	}
	info, err := os.Stat(f.out.Name())
	if err != nil {
		return err
	}
	f.m.Bytes, f.m.SHA256 = info.Size(), hex.EncodeToString(f.sum.Sum(nil))
	f.m.From, f.m.To = apitype.Time{Time: f.m.First.Time()}, apitype.Time{Time: f.m.Last.Time()}
	f.m.CreatedAt = apitype.Time{Time: time.Now().UTC()}
	if err := verify(ctx, disk{}, f.out.Name(), &f.m); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f.m, "", "  ")
	if err == nil {
		err = writeSynced(filepath.Join(f.folder, manifestName), append(text, '\n'))
	}
	if err == nil {
		err = syncFolder(f.folder)
	}
	if err != nil {
		return err
	}
	return f.place.Put(ctx, f.folder, &f.m)
}

// Abandon removes what is written. After Seal it does nothing.
func (f *File) Abandon() {
	if f.zip != nil {
		_ = f.zip.Close()
	}
	if f.out != nil {
		_ = f.out.Close()
	}
	_ = os.RemoveAll(f.folder)
}

// writeSynced writes a new file and flushes it.
func writeSynced(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder flushes the names in a folder.
func syncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
