package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/hashicorp/raft-wal/types"
)

// The format of a segment of package raft-wal: a header, then frames of a type, three zero bytes and
// a length or checksum, padded to eight bytes. An append is entry frames, the index in the last one
// of a file, and a commit frame with the checksum of all of it.
const (
	headerBytes = 32
	frameBytes  = 8
	frameEntry  = 1
	frameIndex  = 2
	frameCommit = 3
	segmentSign = 0x58eb6b0d
)

// A place is an entry in a file, or one that is lost: at is 0 then.
type place struct {
	at, size int // of the entry, bytes
	seq      uint64
	receipt  Receipt // that the producer has; zero: it is not known
	channel  uint32
}

// A scan is what a file contains. Each entry has a checksum of its own, so neither a frame nor a
// commit that is damaged costs another entry: behind what is not understood the scan goes on with
// the next entry. Such an entry must be signed for a place behind the last one, because the damaged
// piece may be the payload of a message that contains the image of an entry.
type scan struct {
	data     []byte
	receipts []byte // beside the file, of entries that were written again
	id       [4]byte
	sign     Signer
	places   []place // of consecutive entries
	next     uint64  // the place after them

	at      int // up to here the file is understood
	batch   int // where the append begins whose end is not reached; -1: not known
	pieces  int // that were not understood
	torn    int // where the last append is cut off; 0: it is whole; wholeFile: there is no other
	base    uint64
	foreign bool // its first entry is signed by brokers of another store
	first   bool // that entry was found
}

// wholeFile is the value of scan.torn where not even the header was written.
const wholeFile = -1

// scanFile reads the entries of a file whose first one has the place base. In the newest file the
// last append may be cut off: it was never answered.
func scanFile(data []byte, info types.SegmentInfo, id [4]byte, sign Signer, newest bool) *scan {
	s := &scan{data: data, id: id, sign: sign, base: info.BaseIndex, next: info.BaseIndex, at: headerBytes}
	if len(data) < headerBytes || !bytes.Equal(data[:headerBytes], segmentHeader(info)) {
		s.batch = -1
		if newest && (len(data) < headerBytes || zero(data)) {
			s.torn = wholeFile
			return s
		}
		s.pieces++
	}
	for s.at < len(s.data) {
		if !s.frame() && !s.resume(newest) {
			break
		}
	}
	return s
}

func segmentHeader(info types.SegmentInfo) []byte {
	b := make([]byte, headerBytes)
	binary.LittleEndian.PutUint32(b, segmentSign)
	binary.LittleEndian.PutUint64(b[8:], info.BaseIndex)
	binary.LittleEndian.PutUint64(b[16:], info.ID)
	binary.LittleEndian.PutUint64(b[24:], info.Codec)
	return b
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// padded is the length of a frame with n bytes.
func padded(n int) int { return frameBytes + (n+frameBytes-1)&^(frameBytes-1) }

// header returns the type and the number of the frame at a place; the type is 0 if there is none.
func (s *scan) header(at int) (kind byte, n int) {
	if at+frameBytes > len(s.data) || s.data[at+1]|s.data[at+2]|s.data[at+3] != 0 {
		return 0, 0
	}
	return s.data[at], int(binary.LittleEndian.Uint32(s.data[at+4:]))
}

// frame moves over the frame that begins here, if it is understood.
func (s *scan) frame() bool {
	kind, n := s.header(s.at)
	if e, size := s.entry(s.at); size > 0 && (kind == frameEntry && n == size || s.trusted(e)) {
		if kind != frameEntry || n != size {
			s.damaged()
		}
		s.add(s.at+frameBytes, size, e)
		s.at += padded(size)
		return true
	}
	switch kind {
	case frameCommit:
		if s.batch >= 0 && crc32.Checksum(s.data[s.batch:s.at], castagnoli) != uint32(n) {
			return false
		}
		s.at += frameBytes
		s.batch = s.at
		return true
	case frameIndex:
		return s.index(n)
	}
	return false
}

// entry returns the entry in the frame at a place, if its checksum is right, and its length. That is
// in the entry itself since version 2.
func (s *scan) entry(at int) (b []byte, size int) {
	at += frameBytes
	if at+fixedBytesV1 > len(s.data) {
		return nil, 0
	}
	b = s.data[at:]
	if size = entrySize(b); size == 0 {
		_, size = s.header(at - frameBytes)
	}
	if size < fixedBytesV1 || size > len(b) || s.seq(b) < s.next || !intact(b[:size]) {
		return nil, 0
	}
	return b[:size], size
}

func (s *scan) seq(b []byte) uint64 { return Receipt(b[receiptAt:triedAt]).seq() }

// trusted reports whether a broker of this store has signed an entry for its place in this journal.
func (s *scan) trusted(b []byte) bool {
	r := Receipt(b[receiptAt:triedAt])
	return r.journal() == s.id && r.seq() >= s.next && r.signedBy(s.sign)
}

// add adds an entry, and those before it that are missing.
func (s *scan) add(at, size int, b []byte) {
	s.lose(s.seq(b), Receipt{})
	if !s.first {
		r := Receipt(b[receiptAt:triedAt])
		s.first, s.foreign, s.id = true, !r.signedBy(s.sign), r.journal()
	}
	s.places = append(s.places, place{at: at, size: size, seq: s.next, receipt: receiptIn(b),
		channel: binary.BigEndian.Uint32(b[channelAt:])})
	s.next++
}

// lose adds the lost entries before a place. The receipt is that of the last of them, if it is known.
func (s *scan) lose(before uint64, last Receipt) {
	for ; s.next < before; s.next++ {
		p := place{seq: s.next}
		if s.next+1 == before {
			p.receipt = last
		}
		s.places = append(s.places, p)
	}
}

// index moves over the index at the end of a sealed file. It tells how many entries there are.
func (s *scan) index(bytes int) bool {
	end := s.at + padded(bytes)
	if bytes%4 != 0 || bytes/4 < len(s.places) || end > len(s.data) {
		return false
	}
	for i, p := range s.places {
		if p.at > 0 && int(binary.LittleEndian.Uint32(s.data[s.at+frameBytes+4*i:])) != p.at-frameBytes {
			return false
		}
	}
	s.lose(s.base+uint64(bytes/4), Receipt{})
	s.at = end
	return true
}

// isIndex reports whether the damaged piece up to the end of the file is the index, whose entries are
// all known.
func (s *scan) isIndex() bool {
	if len(s.places) == 0 || s.at+padded(4*len(s.places))+frameBytes != len(s.data) {
		return false
	}
	wrong := 0
	for i, p := range s.places {
		if int(binary.LittleEndian.Uint32(s.data[s.at+frameBytes+4*i:])) != p.at-frameBytes {
			wrong++
		}
	}
	return wrong <= 1
}

// damaged counts a piece that was not understood.
func (s *scan) damaged() {
	s.pieces++
	s.batch = -1
}

// resume moves over what is not understood, to the next entry or the end. It reports whether the
// scan goes on.
func (s *scan) resume(newest bool) bool {
	from, end := s.at, len(s.data)
	for at := from + frameBytes; at < len(s.data); at += frameBytes {
		if e, size := s.entry(at); size > 0 && s.trusted(e) {
			end = at
			break
		}
	}
	if end == len(s.data) && newest && s.cutOff() {
		s.torn = from
		return false
	}
	s.damaged()
	if end == len(s.data) && s.isIndex() {
		s.at = end
		return false
	}
	known := s.next
	s.suspects(from, end)
	if kind, _ := s.header(end - frameBytes); kind == frameCommit {
		s.batch = end
	}
	if end == len(s.data) && s.next == known && end-from > fixedBytesV1+frameBytes {
		s.lose(s.next+s.listed(from), Receipt{})
	}
	s.at = end
	return true
}

// listed returns how many entries the end of the index has behind a place, of a damaged piece that
// contains its beginning; without an index it is one. They are no more than would fit there.
func (s *scan) listed(from int) (n uint64) {
	at := len(s.data) - frameBytes - 4
	if at > from && zero(s.data[at:at+4]) { // it is padded
		at -= 4
	}
	most := uint64((len(s.data)-from)/padded(fixedBytesV1) + 1)
	for before := at; at > from && n < most; at, n = at-4, n+1 {
		offset := int(binary.LittleEndian.Uint32(s.data[at:]))
		if offset < from || offset >= before || offset%frameBytes != 0 {
			break
		}
		before = offset
	}
	return max(1, n)
}

// cutOff reports whether the file ends within the frame that begins here, as that of a process does
// that died while it wrote: a whole append ends with a commit.
func (s *scan) cutOff() bool {
	rest := s.data[s.at:]
	if zero(rest) {
		return true
	}
	if kind, _ := s.header(len(s.data) - frameBytes); kind == frameCommit && len(s.data)%frameBytes == 0 {
		return false
	}
	kind, n := s.header(s.at)
	return len(rest) < frameBytes || kind == frameEntry && s.at+padded(n) >= len(s.data) || kind == frameIndex &&
		s.at+padded(n) > len(s.data)
}

// suspects finds the receipts of damaged entries in a piece.
func (s *scan) suspects(from, end int) {
	for at := from; at+frameBytes+fixedBytesV1 <= end; at += frameBytes {
		b := s.data[at+frameBytes : end]
		if !bytes.Equal(b[receiptAt+6:receiptAt+10], s.id[:]) || !s.trusted(b) {
			continue
		}
		r := receiptIn(b)
		if !r.signedBy(s.sign) {
			r = Receipt{}
		}
		s.lose(s.seq(b)+1, r)
	}
}

// lost returns what is known of a lost entry. Where the disk returns no receipt, it is the one of
// its place; that of entries which an earlier release has written again follows from an entry before
// it.
func (s *scan) lost(i int) Receipt {
	if r, ok := s.second(i); ok {
		return r
	}
	if i >= len(s.places) {
		return placeOf(s.id, s.base+uint64(i))
	}
	if p := s.places[i]; p.receipt != (Receipt{}) {
		return p.receipt
	}
	for k := i - 1; k >= 0; k-- {
		if r := s.places[k].receipt; r != (Receipt{}) {
			return placeOf(r.journal(), r.seq()+uint64(i-k))
		}
	}
	return placeOf(s.id, s.places[i].seq)
}
