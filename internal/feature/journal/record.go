package journal

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// ReceiptSize is the length of a receipt in bytes.
const ReceiptSize = len(durable.ReceiptID{})

// A Receipt names a message in a journal, for its producer and for the table of results. Its
// bytes are, big-endian, 48 bits of Unix milliseconds, 32 bits of the journal, 48 bits of the
// place in the journal and a signature of 32 bits, so all brokers of a store can tell a receipt
// from a guess, and receipts ascend with time.
type Receipt durable.ReceiptID

// signed is the length of the part of a receipt that is signed.
const signed = ReceiptSize - 4

// A Signer returns the signature of the signed part of a receipt. All brokers of a store have the
// same one.
type Signer func(part []byte) [4]byte

var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

func newReceipt(ms int64, journal [4]byte, seq uint64, sign Signer) (r Receipt) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(ms))
	copy(r[0:6], b[2:])
	copy(r[6:10], journal[:])
	binary.BigEndian.PutUint64(b[:], seq)
	copy(r[10:16], b[2:])
	sum := sign(r[:signed])
	copy(r[signed:], sum[:])
	return r
}

// String returns the 32 characters of a receipt in its path.
func (r Receipt) String() string { return encoding.EncodeToString(r[:]) }

// ParseReceipt is the inverse of String. ok reports whether a broker of this store made the
// receipt.
func ParseReceipt(text string, sign Signer) (r Receipt, ok bool) {
	if len(text) != ReceiptSize*8/5 {
		return r, false
	}
	b, err := encoding.DecodeString(text)
	if err != nil {
		return r, false
	}
	copy(r[:], b)
	return r, r.signedBy(sign)
}

func (r Receipt) signedBy(sign Signer) bool {
	sum := sign(r[:signed])
	return [4]byte(r[signed:]) == sum
}

// Ms is the time at which the message was put into the journal, Unix ms of its broker.
func (r Receipt) Ms() int64 { return int64(binary.BigEndian.Uint64(append([]byte{0, 0}, r[0:6]...))) }

func (r Receipt) journal() [4]byte { return [4]byte(r[6:10]) }

// Place is the receipt without time and signature: the one under which a journal reports a message
// as lost of which the disk returns no receipt. Its time is that of its file, hardly earlier.
func (r Receipt) Place() Receipt { return placeOf(r.journal(), r.seq()) }

// Places in a journal begin at the time, so a journal that was emptied gives none twice.
const placesPerMs = 16

func placeOf(journal [4]byte, seq uint64) Receipt {
	return newReceipt(int64(seq/placesPerMs), journal, seq, func([]byte) [4]byte { return [4]byte{} })
}

func (r Receipt) seq() uint64 { return binary.BigEndian.Uint64(append([]byte{0, 0}, r[10:16]...)) }

// A Record is a message on its way into the journal. The journal keeps neither it nor its bytes.
type Record struct {
	Msg *durable.Message
	// Tried is the ID under which the store may have the message already; zero: it has not.
	Tried ident.ID

	origin Receipt // that the producer has, of an entry that is written again
}

// An Entry is a message in the journal.
type Entry struct {
	Record
	Receipt Receipt // that the producer has
	Seq     uint64  // its place
	// Lost tells that the disk returns other bytes than were written. Msg is nil then, and Receipt
	// may be that of Place.
	Lost bool
	// Elsewhere tells of a lost entry that the journal has at another place, too.
	Elsewhere bool
	// Held is set before Settle, for an entry that is not over.
	Held bool

	part  *part
	again bool // it was held before
	bytes int64
}

// The fixed part of an entry: checksum, version, receipt, tried ID, channel, producer, priority,
// time to live, and the lengths of key, content type, addressed consumers and headers. Since version
// 2 the length of the entry and, where the entry was written again, the receipt that the producer
// has. The payload is the rest.
const (
	entryVersion = 2
	receiptAt    = 4 + 1
	triedAt      = receiptAt + ReceiptSize
	channelAt    = triedAt + ident.Size
	producerAt   = channelAt + 4
	priorityAt   = producerAt + 4
	ttlAt        = priorityAt + 2
	keyAt        = ttlAt + 8
	typeAt       = keyAt + 2
	addressAt    = typeAt + 2
	headersAt    = addressAt + 2
	fixedBytesV1 = headersAt + 4
	sizeAt       = fixedBytesV1
	originAt     = sizeAt + 4
	fixedBytes   = originAt + ReceiptSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns an entry without checksum and receipt, which seal sets.
func (r *Record) encode() []byte {
	m := r.Msg
	size := fixedBytes + len(m.Key) + len(m.ContentType) + len(m.Addressed) + len(m.Headers) + len(m.Payload)
	b := make([]byte, fixedBytes, size)
	b[4] = entryVersion
	copy(b[triedAt:], r.Tried[:])
	binary.BigEndian.PutUint32(b[channelAt:], m.ChannelNo)
	binary.BigEndian.PutUint32(b[producerAt:], m.ProducerNo)
	binary.BigEndian.PutUint16(b[priorityAt:], uint16(m.Priority))
	binary.BigEndian.PutUint64(b[ttlAt:], uint64(m.TTLMs))
	binary.BigEndian.PutUint16(b[keyAt:], uint16(len(m.Key)))
	binary.BigEndian.PutUint16(b[typeAt:], uint16(len(m.ContentType)))
	binary.BigEndian.PutUint16(b[addressAt:], uint16(len(m.Addressed)))
	binary.BigEndian.PutUint32(b[headersAt:], uint32(len(m.Headers)))
	binary.BigEndian.PutUint32(b[sizeAt:], uint32(size))
	copy(b[originAt:], r.origin[:])
	b = append(b, m.Key...)
	b = append(b, m.ContentType...)
	b = append(b, m.Addressed...)
	b = append(b, m.Headers...)
	return append(b, m.Payload...)
}

// seal completes an encoded entry.
func seal(b []byte, r Receipt) {
	copy(b[receiptAt:], r[:])
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// errDamaged means that the disk returns other bytes than were written.
var errDamaged = errors.New("journal: an entry is damaged")

// entrySize returns the length of an entry that contains it, or 0. The entry may be damaged.
func entrySize(b []byte) int {
	if len(b) < fixedBytes || b[4] != entryVersion {
		return 0
	}
	return int(binary.BigEndian.Uint32(b[sizeAt:]))
}

// intact reports whether an entry is as it was written.
func intact(b []byte) bool {
	return len(b) >= fixedBytesV1 && crc32.Checksum(b[4:], castagnoli) == binary.BigEndian.Uint32(b)
}

// decode returns the entry in b. The message has memory of its own. Which filters leave it out is
// decided when it is stored.
func decode(seq uint64, b []byte) (*Entry, error) {
	if !intact(b) {
		return nil, errDamaged
	}
	fixed := fixedBytesV1
	if b[4] == entryVersion {
		fixed = fixedBytes
	}
	if b[4] == 0 || b[4] > entryVersion || len(b) < fixed {
		return nil, errDamaged
	}
	key, kind := int(binary.BigEndian.Uint16(b[keyAt:])), int(binary.BigEndian.Uint16(b[typeAt:]))
	addressed, headers := int(binary.BigEndian.Uint16(b[addressAt:])), int(binary.BigEndian.Uint32(b[headersAt:]))
	rest := append([]byte(nil), b[fixed:]...)
	if len(rest) < key+kind+addressed+headers {
		return nil, errDamaged
	}
	m := &durable.Message{
		ChannelNo:  binary.BigEndian.Uint32(b[channelAt:]),
		ProducerNo: binary.BigEndian.Uint32(b[producerAt:]),
		Priority:   int(binary.BigEndian.Uint16(b[priorityAt:])),
		TTLMs:      int64(binary.BigEndian.Uint64(b[ttlAt:])),
		Key:        string(rest[:key]), ContentType: string(rest[key : key+kind]),
	}
	rest = rest[key+kind:]
	m.Addressed, rest = durable.Positions(rest[:addressed]), rest[addressed:]
	m.Headers, m.Payload = rest[:headers:headers], rest[headers:]
	e := &Entry{Record: Record{Msg: m}, Receipt: receiptIn(b), Seq: seq, bytes: int64(len(b)) + entryOverhead}
	copy(e.Tried[:], b[triedAt:channelAt])
	return e, nil
}

// receiptIn returns the receipt that the producer of an entry has.
func receiptIn(b []byte) Receipt {
	if b[4] == entryVersion && len(b) >= fixedBytes {
		if r := Receipt(b[originAt:fixedBytes]); r != (Receipt{}) {
			return r
		}
	}
	return Receipt(b[receiptAt:triedAt])
}
