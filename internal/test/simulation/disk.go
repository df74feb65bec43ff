package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/penstock-broker/penstock/internal/feature/journal"
)

// A disk has the files of all journals. It outlives the lives: what one has flushed, the next one
// in its slot finds. What a life that is killed has written and not flushed may be there, may be
// torn, and may be gone. A disk that is full takes no file and only a part of a write.
type disk struct {
	w    *world
	full away

	mu    sync.Mutex
	files map[string]*diskFile // by path
}

// A diskFile is one file, to which one life appends.
type diskFile struct {
	life    *life
	data    []byte
	flushed int // bytes that no loss of power takes
}

var (
	errNoSpace   = errors.New("simulation: no space left on the disk")
	errDisk      = errors.New("simulation: the disk failed")
	errDeadOwner = errors.New("simulation: the process is dead")
)

// A lifeFiles is the files as one life reaches them: journal.Files.
type lifeFiles struct {
	l *life
	d *disk
}

// enter locks the disk for a call of the life that takes no time. A dead life reaches no file.
func (f lifeFiles) enter() error {
	f.d.mu.Lock()
	if f.l.dead() {
		f.d.mu.Unlock()
		return errDeadOwner
	}
	return nil
}

// ListDir is the first that a life asks of a journal that it opens.
func (f lifeFiles) ListDir(dir string) (names []string, err error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.d.mu.Unlock()
	for path := range f.d.files {
		if filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	if f.d.w.flaw == journalIsRemoved && len(names) > 0 {
		delete(f.d.files, filepath.Join(dir, names[0]))
		names = names[1:]
	}
	return names, nil
}

func (f lifeFiles) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.d.mu.Unlock()
	path := filepath.Join(dir, name)
	switch {
	case f.d.files[path] != nil:
		return nil, fs.ErrExist
	case f.d.full.now():
		return nil, errNoSpace
	}
	f.d.files[path] = &diskFile{life: f.l}
	return f.opened(path), nil
}

func (f lifeFiles) Delete(dir, name string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.d.mu.Unlock()
	delete(f.d.files, filepath.Join(dir, name))
	return nil
}

func (f lifeFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return f.OpenWriter(dir, name)
}

func (f lifeFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.d.mu.Unlock()
	path := filepath.Join(dir, name)
	if f.d.files[path] == nil {
		return nil, fs.ErrNotExist
	}
	return f.opened(path), nil
}

func (f lifeFiles) Size(dir, name string) (int64, error) {
	if err := f.enter(); err != nil {
		return 0, err
	}
	defer f.d.mu.Unlock()
	file := f.d.files[filepath.Join(dir, name)]
	if file == nil {
		return 0, fs.ErrNotExist
	}
	return int64(len(file.data)), nil
}

func (f lifeFiles) Rename(dir, from, to string) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.d.mu.Unlock()
	f.d.files[filepath.Join(dir, to)] = f.d.files[filepath.Join(dir, from)]
	delete(f.d.files, filepath.Join(dir, from))
	return nil
}

func (f lifeFiles) Truncate(dir, name string, size int64) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.d.mu.Unlock()
	file := f.d.files[filepath.Join(dir, name)]
	if file == nil {
		return fs.ErrNotExist
	}
	file.data = file.data[:min(size, int64(len(file.data)))]
	file.flushed = len(file.data)
	return nil
}

// receiptsSuffix ends the name of a file with the receipts of messages that were written again.
const receiptsSuffix = ".receipts"

// An openFile is a file that a life has open. Its faults are those of its kind.
type openFile struct {
	lifeFiles
	file *diskFile
	kind string
}

func (f lifeFiles) opened(path string) openFile {
	if strings.HasSuffix(path, receiptsSuffix) {
		return openFile{f, f.d.files[path], "receipts"}
	}
	return openFile{f, f.d.files[path], "journal"}
}

func (o openFile) Close() error { return nil }

func (o openFile) ReadAt(b []byte, at int64) (int, error) {
	if err := o.enter(); err != nil {
		return 0, err
	}
	defer o.d.mu.Unlock()
	if at >= int64(len(o.file.data)) {
		return 0, io.EOF
	}
	n := copy(b, o.file.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt writes at the end of the file: all of it, or where it fails, a part.
func (o openFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = o.slow(o.kind+" write", func(r *chance, fails bool) error {
		n = len(b)
		if fails || o.d.full.now() {
			n = r.below(len(b))
		}
		o.file.data = append(o.file.data[:at:at], b[:n]...)
		if n < len(b) {
			return o.cut(r, errNoSpace)
		}
		return nil
	})
	if err != nil && n == len(b) {
		n = 0
	}
	return n, err
}

// Sync makes what was written safe. Where it fails, it may be.
func (o openFile) Sync() error {
	return o.slow(o.kind+" flush", func(r *chance, fails bool) error {
		if o.d.w.flaw != flushIsForgotten && !fails {
			o.file.flushed = len(o.file.data)
		}
		if fails {
			return o.cut(r, errDisk)
		}
		return nil
	})
}

// cut removes what is not flushed after a call that failed, as far as the disk still allows.
func (o openFile) cut(r *chance, err error) error {
	if r.hit(300) {
		return errors.Join(err, journal.ErrUnsure)
	}
	o.file.data = o.file.data[:min(o.file.flushed, len(o.file.data))]
	return err
}

// slow makes a call that takes time. It may fail, and may be the last one of the life.
func (o openFile) slow(op string, effect func(r *chance, fails bool) error) error {
	l := o.l
	w := l.w
	r := l.chance(op, 0)
	took := r.between(5*time.Microsecond, 100*time.Microsecond)
	faults := w.plan.journal
	before, after, fails := r.hit(faults.crash), r.hit(faults.crash), r.hit(faults.fail)
	if r.hit(w.plan.slow) && w.faulty() {
		took = r.between(0, 300*time.Millisecond)
	}
	if !l.awake() || !l.sleep(context.Background(), took) {
		return errDeadOwner
	}
	faulty := w.faulty()
	if faulty && before {
		l.crash("before " + op)
	}
	if err := o.enter(); err != nil {
		return err
	}
	err := effect(&r, faulty && fails)
	o.d.mu.Unlock()
	if err != nil {
		l.note(op+" fails", 0, none, err.Error())
	}
	if faulty && after {
		l.crash("after " + op)
	}
	if !l.awake() {
		return errDeadOwner
	}
	return err
}

// lost is the loss of power of a life that is killed: each byte that it has not flushed may be
// gone, and the last one that is left may be another one. Three kills of ten leave everything.
func (d *disk) lost(l *life) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := draw(d.w.seed, word("power"), uint64(l.no))
	stays := r.hit(300)
	for _, path := range d.paths() {
		f := d.files[path]
		if f.life != l || f.flushed == len(f.data) {
			continue
		}
		if !stays {
			f.data = f.data[:f.flushed+r.below(len(f.data)-f.flushed+1)]
			if last := len(f.data) - 1; last >= f.flushed && r.hit(500) {
				f.data[last] ^= 0x55
			}
		}
		f.flushed = len(f.data)
	}
	d.flip(l, &r)
}

// flip changes a byte of a file in the folder of a life that is over. It is one of messages, or one of
// the receipts of messages that were written again.
func (d *disk) flip(l *life, r *chance) {
	var mine, beside []*diskFile
	for _, path := range d.paths() {
		if !strings.HasPrefix(path, d.w.folder(l.slot)+"/") || len(d.files[path].data) == 0 || d.files[path].life != l {
			continue
		}
		if strings.HasSuffix(path, receiptsSuffix) {
			beside = append(beside, d.files[path])
		} else {
			mine = append(mine, d.files[path])
		}
	}
	if len(mine) == 0 || !r.hit(d.w.plan.journal.flips) {
		one := draw(d.w.seed, word("receipts"), uint64(l.no)) // a draw of its own: the others stay
		if len(beside) > 0 && one.hit(d.w.plan.journal.flips) {
			f := beside[one.below(len(beside))]
			f.data[one.below(len(f.data))] ^= 1 << one.below(8)
		}
		return
	}
	f := mine[r.below(len(mine))]
	at := r.below(len(f.data))
	f.data[at] ^= 1 << r.below(8)
	if d.w.flaw == damageIsSilent {
		f.data = f.data[:at]
		f.flushed = min(f.flushed, at)
	}
}

// paths returns the files in order. Call it with mu held.
func (d *disk) paths() []string {
	paths := make([]string, 0, len(d.files))
	for path := range d.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// left says which journal is not empty; "": all are.
func (d *disk) left() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range d.paths() {
		if strings.HasSuffix(path, ".wal") || strings.HasSuffix(path, receiptsSuffix) {
			return fmt.Sprintf("the journal has the file %s of %d bytes", strings.TrimPrefix(path, d.w.folders),
				len(d.files[path].data))
		}
	}
	return ""
}
