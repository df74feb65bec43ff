package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// Bounds of a segment, bytes. A segment is removed when all of its entries are over, so a quarter
// of the journal is the most that entries which are over can occupy beside others.
const (
	leastSegment = 16 << 10
	mostSegment  = 8 << 20
)

// entryOverhead bounds the bytes that an entry takes on disk besides itself: frame, padding,
// index, and its share of the commit frame.
const entryOverhead = 40

// A part is one segment: a file with consecutive entries. Only the newest is written, and only by
// the process that made it. A file from an earlier process is read and then removed, so a torn
// end is never written over.
type part struct {
	info  types.SegmentInfo
	last  uint64 // entry; below info.BaseIndex: it has none
	bytes int64

	open    types.SegmentWriter // nil: closed
	reading bool                // Read uses it
}

func (p *part) entries() int64 { return int64(p.last + 1 - p.info.BaseIndex) }

// load finds the segments on disk, oldest first. Opening one drops a torn last write, which was
// never answered.
func (j *Journal) load() error {
	found, err := j.filer.List()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	ids := make([]uint64, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		p := &part{info: types.SegmentInfo{ID: id, BaseIndex: found[id], MinIndex: found[id], SizeLimit: uint32(j.segment)}}
		j.nextID = id + 1
		if p.open, err = j.recover(p); errors.Is(err, types.ErrCorrupt) {
			j.setAside(p, err)
			continue
		} else if err != nil {
			return err
		}
		p.last = max(p.open.LastIndex(), p.info.BaseIndex-1)
		if size, err := j.o.Files.Size(j.dir, segment.FileName(p.info)); err == nil {
			p.bytes = size
		}
		if p.entries() == 0 {
			j.remove(p)
			continue
		}
		j.closePart(p)
		j.parts = append(j.parts, p)
		j.bytes += p.bytes
		j.waiting += p.entries()
		j.last = p.last
	}
	if len(j.parts) > 0 {
		j.cursor = j.parts[0].info.BaseIndex - 1
		j.settled = j.cursor
	}
	return nil
}

func (j *Journal) recover(p *part) (types.SegmentWriter, error) {
	w, err := j.filer.RecoverTail(p.info)
	if err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", segment.FileName(p.info), err)
	}
	return w, nil
}

// closePart closes the file of a part, or leaves that to the goroutine that reads it. It needs j.mu.
func (j *Journal) closePart(p *part) {
	if p.open != nil && !p.reading {
		_ = p.open.Close() // everything that counts was flushed
		p.open = nil
	}
}

// setAside renames a file whose content is not that of a segment, for an operator to look at.
func (j *Journal) setAside(p *part, err error) {
	name := segment.FileName(p.info)
	renamed := j.o.Files.Rename(j.dir, name, name+".damaged") == nil
	j.log.Error("a file of the journal is damaged: its messages are lost unless their producers send them again",
		"file", filepath.Join(j.dir, name+".damaged"), "error", err, "renamed", renamed)
}

// remove deletes the file of a part. One that cannot be deleted is replayed at the next start,
// without effect.
func (j *Journal) remove(p *part) {
	j.closePart(p)
	if err := j.filer.Delete(p.info.BaseIndex, p.info.ID); err != nil && !errors.Is(err, os.ErrNotExist) {
		j.log.Warn("a file of the journal cannot be removed", "file", segment.FileName(p.info), "error", err)
	}
}

// tail returns the part to which entries are appended, with room for at least one.
func (j *Journal) tail() (*part, error) {
	if j.writing != nil {
		if sealed, _, err := j.writing.open.Sealed(); err == nil && !sealed {
			return j.writing, nil
		}
		j.retire()
	}
	// Places in the journal begin at the time, so a journal that was emptied gives none twice.
	base := max(j.last+1, uint64(time.Now().UnixMilli())<<4)
	p := &part{info: types.SegmentInfo{ID: j.nextID, BaseIndex: base, MinIndex: base, SizeLimit: uint32(j.segment)}}
	w, err := j.filer.Create(p.info)
	if err != nil {
		return nil, err
	}
	j.nextID++
	p.open, p.last = w, base-1
	if len(j.parts) == 0 { // everything before it is over
		j.cursor, j.settled = base-1, base-1
	}
	j.parts = append(j.parts, p)
	j.writing = p
	return p, nil
}

// retire ends the writing of the newest part. Its file is read from now on, or removed if it has
// no entry.
func (j *Journal) retire() {
	p := j.writing
	j.writing = nil
	if p == nil {
		return
	}
	j.closePart(p)
	if p.entries() == 0 {
		j.bytes -= p.bytes
		j.parts = slices.DeleteFunc(j.parts, func(q *part) bool { return q == p })
		j.remove(p)
	}
}

// A stretch is consecutive entries of a part.
type stretch struct {
	p        *part
	from, to uint64
}

// stretches returns what is behind the cursor. The first part is marked as being read.
func (j *Journal) stretches() (all []stretch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.parts {
		if p.last > j.cursor {
			all = append(all, stretch{p, max(p.info.BaseIndex, j.cursor+1), p.last})
		}
	}
	return all
}

// Read returns entries behind the cursor, in order: up to most, and no more than bytes except the
// first. One goroutine at a time reads, advances and rewinds.
func (j *Journal) Read(most, bytes int) (out []*Entry, err error) {
	for _, s := range j.stretches() {
		done := false
		err = j.reading(s, func(w types.SegmentWriter) (all bool, err error) {
			out, all, err = j.readStretch(w, s, out, most, bytes)
			done = !all
			return all, err
		})
		if err != nil || done {
			break
		}
	}
	if len(out) > 0 {
		err = nil // those first
		j.mu.Lock()
		j.oldestMs = out[0].Receipt.Ms()
		j.mu.Unlock()
	}
	return out, err
}

// reading calls f with the open part of a stretch. The part stays open until it was read to its
// end.
func (j *Journal) reading(s stretch, f func(types.SegmentWriter) (all bool, err error)) error {
	j.mu.Lock()
	s.p.reading = true
	w := s.p.open
	j.mu.Unlock()
	var err error
	if w == nil {
		if w, err = j.recover(s.p); err != nil {
			return err
		}
		j.mu.Lock()
		s.p.open = w
		j.mu.Unlock()
	}
	all, err := f(w)
	j.mu.Lock()
	s.p.reading = false
	if s.p != j.writing && (all || err != nil) {
		j.closePart(s.p)
	}
	j.mu.Unlock()
	return err
}

// readStretch appends entries of a stretch to out. all reports whether it came to the end.
func (j *Journal) readStretch(w types.SegmentWriter, s stretch, out []*Entry, most, bytes int) (_ []*Entry, all bool, err error) {
	size := 0
	for _, e := range out {
		size += e.Msg.Bytes()
	}
	for seq := s.from; seq <= s.to; seq++ {
		if len(out) >= most || len(out) > 0 && size > bytes {
			return out, false, nil
		}
		var e *Entry
		b, err := w.GetLog(seq)
		if err == nil {
			e, err = decode(seq, b.Bs)
			_ = b.Close()
		}
		switch {
		case errors.Is(err, errDamaged), errors.Is(err, types.ErrCorrupt):
			j.log.Error("an entry of the journal is damaged on disk: its message is lost unless its producer sends it again",
				"file", segment.FileName(s.p.info), "entry", seq, "error", err)
			if len(out) > 0 { // those before it first
				return out, false, nil
			}
			j.Advance(seq, 0, 1)
			continue
		case err != nil:
			return out, false, fmt.Errorf("journal: read: %w", err)
		case !e.Receipt.signedBy(j.sign):
			return out, false, ErrForeign
		}
		out, size = append(out, e), size+e.Msg.Bytes()
	}
	return out, true, nil
}

// ErrForeign means that the journal was written by brokers of another store.
var ErrForeign = errors.New("journal: it belongs to another store")

// Advance moves on: the entries up to cursor are over or held, n of them since the last call, and
// those up to settled are over. Files whose entries are all over are removed.
func (j *Journal) Advance(cursor, settled uint64, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cursor, j.settled = max(j.cursor, cursor), max(j.settled, settled)
	j.waiting -= int64(n)
	j.oldestMs = 0
	for len(j.parts) > 0 && j.parts[0].last <= j.settled {
		p := j.parts[0]
		if p == j.writing {
			if j.appending {
				break
			}
			j.writing = nil
		}
		j.parts = j.parts[1:]
		j.bytes -= p.bytes
		j.remove(p)
	}
}

// Rewind makes Read return again what was held: all entries behind settled.
func (j *Journal) Rewind() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.parts {
		if p.info.BaseIndex > j.cursor {
			break
		}
		from := max(p.info.BaseIndex, j.settled+1)
		if to := min(p.last, j.cursor); to >= from {
			j.waiting += int64(to - from + 1)
		}
	}
	j.cursor = j.settled
}
