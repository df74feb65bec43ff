package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// Bounds of a segment, bytes. A segment is removed when all of its entries are over, so an eighth
// of the journal is the most that entries which are over can occupy beside others.
const (
	leastSegment = 16 << 10
	mostSegment  = 8 << 20
)

// entryOverhead bounds the bytes that an entry takes on disk besides itself: frame, padding,
// index, and its share of the commit frame.
const entryOverhead = 40

// damagedSuffix ends the name of a file that is kept because a piece of it was not understood.
const damagedSuffix = ".damaged"

// A part is one segment: a file with consecutive entries. Only the newest is written, and only by
// the process that made it. A file from an earlier process is read and then removed, so a torn
// end is never written over.
type part struct {
	info   types.SegmentInfo
	order  uint64 // parts are read in this order: the first place of its messages, before they were written again
	last   uint64 // entry; below info.BaseIndex: it has none
	cursor uint64 // up to here its entries are over or held
	held   int64  // of them
	bytes  int64
	pieces int // that were not understood; the file is kept then
	usage  usages

	twice    bool  // its entries were written again, and their receipts are in a file beside it
	receipts int64 // bytes of that file

	open types.SegmentWriter // nil: closed
}

func (p *part) entries() int64 { return int64(p.last + 1 - p.info.BaseIndex) }

func (p *part) name() string { return segment.FileName(p.info) }

// load finds the segments on disk. Nothing is changed where they belong to another store.
func (j *Journal) load() error {
	found, stray, err := j.list()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var scans []*scan
	for i, p := range found {
		s, err := j.scan(p, i == len(found)-1)
		if err != nil {
			return err
		}
		if s.foreign {
			j.foreign = true
			return nil
		}
		scans = append(scans, s)
	}
	j.compareCopies(scans)
	for _, name := range stray {
		j.dropReceipts(name)
	}
	for i, p := range found {
		j.nextID = p.info.ID + 1
		j.take(p, scans[i])
	}
	slices.SortStableFunc(j.parts, func(a, b *part) int { return compare(a.order, b.order) })
	return nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// list returns the segments in the folder, oldest first, and the receipts of files that are gone. It
// counts the files that are kept.
func (j *Journal) list() (found []*part, stray []string, err error) {
	names, err := j.o.Files.ListDir(j.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, damagedSuffix) {
			j.damaged++
		}
		if of, ok := strings.CutSuffix(name, receiptsSuffix); ok && !slices.Contains(names, of) {
			stray = append(stray, name)
		}
		var base, id uint64
		if n, _ := fmt.Sscanf(name, "%020d-%016x.wal", &base, &id); n < 2 || base == 0 {
			continue
		}
		p := &part{info: types.SegmentInfo{ID: id, BaseIndex: base, MinIndex: base, SizeLimit: uint32(j.segment)},
			order: base, usage: usages{}}
		if p.name() != name {
			continue
		}
		if p.twice = slices.Contains(names, name+receiptsSuffix); p.twice {
			if p.receipts, err = j.o.Files.Size(j.dir, name+receiptsSuffix); err != nil {
				return nil, nil, err
			}
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b *part) int { return compare(a.info.ID, b.info.ID) })
	return found, stray, nil
}

// scan reads the file of a part.
func (j *Journal) scan(p *part, newest bool) (*scan, error) {
	data, whole, err := j.readFile(p.name())
	if errors.Is(err, os.ErrNotExist) { // somebody removed it: its entries are lost
		data, whole = nil, false
	} else if err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", p.name(), err)
	}
	p.bytes = int64(len(data))
	s := scanFile(data, p.info, j.id, j.sign, newest && whole)
	if s.receipts = j.readReceipts(p); s.pieces > 0 && s.torn == 0 {
		s.lose(s.base+uint64(len(s.receipts)/ReceiptSize), Receipt{})
	}
	return s, nil
}

// readBytes are read at once, readLeast where the disk cannot.
const (
	readBytes = 1 << 20
	readLeast = 4 << 10
)

// readFile returns what the disk has of a file: zeros where it cannot be read, which no entry
// survives. whole reports whether all of it was read.
func (j *Journal) readFile(name string) (data []byte, whole bool, err error) {
	size, err := j.o.Files.Size(j.dir, name)
	if err != nil {
		return nil, false, err
	}
	f, err := j.o.Files.OpenReader(j.dir, name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	data, whole = make([]byte, size), true
	for at, step := int64(0), int64(readBytes); at < size; {
		b := data[at:min(size, at+step)]
		n, err := f.ReadAt(b, at)
		switch {
		case n == len(b):
			at += int64(n)
		case errors.Is(err, io.EOF): // it became shorter
			return data[:at+int64(n)], whole, nil
		case step > readLeast:
			step = readLeast
		default:
			clear(b)
			whole = false
			at += int64(len(b))
		}
	}
	return data, whole, nil
}

// take takes over the part of an earlier process. The torn end of its last append is cut off, so the
// file is whole when a newer one begins.
func (j *Journal) take(p *part, s *scan) {
	p.last, p.cursor, p.pieces = s.next-1, p.info.BaseIndex-1, s.pieces
	if s.torn > 0 && len(s.places) > 0 {
		if err := j.o.Files.Truncate(j.dir, p.name(), int64(s.torn)); err != nil {
			j.log.Warn("the torn end of a file of the journal cannot be cut off", "file", j.path(p), "error", err)
		} else {
			p.bytes = int64(s.torn)
		}
	}
	p.bytes += p.receipts
	j.bytes += p.bytes
	lost := 0
	for i, at := range s.places {
		if at.at == 0 {
			lost++
			continue
		}
		p.usage.add(at.channel, 1, int64(at.size)+entryOverhead)
		j.usage.add(at.channel, 1, int64(at.size)+entryOverhead)
		p.order = at.receipt.seq() - uint64(i)
	}
	if r, ok := s.second(0); ok {
		p.order = r.seq()
	}
	if p.pieces > 0 {
		j.log.Error("a file of the journal is damaged; it is kept under another name when its messages are stored",
			"file", j.path(p), "pieces", p.pieces, "messages", len(s.places)-lost, "lost", lost)
	}
	if p.entries() == 0 {
		j.drop(p)
		return
	}
	j.parts = append(j.parts, p)
	j.waiting += p.entries()
	j.last = max(j.last, p.last)
}

func (j *Journal) path(p *part) string { return filepath.Join(j.dir, p.name()) }

// closePart closes the file of a part. It needs j.mu.
func (j *Journal) closePart(p *part) {
	if p.open != nil {
		_ = p.open.Close() // everything that counts was flushed
		p.open = nil
	}
}

// drop removes a part whose entries are over. A file of which a piece was not understood gets
// another name instead, for an operator to look at. One that cannot be removed is drained at the
// next start, without effect.
func (j *Journal) drop(p *part) {
	j.closePart(p)
	j.bytes -= p.bytes
	for channel, u := range p.usage { // of entries that were lost since
		j.usage.add(channel, -u.waiting, -u.bytes)
	}
	if j.cached == p {
		j.cached, j.cache = nil, nil
	}
	var err error
	if p.pieces == 0 {
		if err = j.o.Files.Delete(j.dir, p.name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			j.log.Warn("a file of the journal cannot be removed", "file", p.name(), "error", err)
		}
	} else {
		j.damaged++
		err = j.o.Files.Rename(j.dir, p.name(), p.name()+damagedSuffix)
		j.log.Error("a damaged file of the journal is kept; remove it when you do not need it", "file", j.path(p)+
			damagedSuffix, "error", err)
	}
	if p.twice && (err == nil || errors.Is(err, os.ErrNotExist)) {
		j.dropReceipts(p.name() + receiptsSuffix)
	}
}

// sweep removes the parts whose entries are over. It needs j.mu.
func (j *Journal) sweep() {
	j.parts = slices.DeleteFunc(j.parts, func(p *part) bool {
		if p.cursor < p.last || p.held > 0 || p == j.writing && j.appending {
			return false
		}
		if p == j.writing {
			j.writing = nil
		}
		j.drop(p)
		return true
	})
}
