package answer

import (
	"encoding/base64"
	"unsafe"

	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// apart is the size, bytes, above which a payload is not copied into the text.
const apart = 16 << 10

// A Text is JSON whose large payloads are apart from it, to be escaped when they are written. B is
// appended to as any other text; the zero value is ready.
type Text struct {
	B     []byte
	Whole bool // no payload is apart

	parts []part
	more  int // bytes of the parts as JSON
}

// A part is a payload that belongs before B[at].
type part struct {
	at      int
	payload []byte
	base64  bool
}

// size returns how many bytes the part has as a JSON string.
func (p *part) size() int {
	if p.base64 {
		return base64.StdEncoding.EncodedLen(len(p.payload)) + 2
	}
	return jsontext.Size(p.payload)
}

// String appends a payload as a JSON string: valid UTF-8 as it is, or the base64 of any bytes. The
// payload must not change until the text is written.
func (t *Text) String(payload []byte, inBase64 bool) {
	p := part{len(t.B), payload, inBase64}
	if len(payload) > apart && !t.Whole {
		t.parts = append(t.parts, p)
		t.more += p.size()
		return
	}
	if !inBase64 {
		t.B = jsontext.Append(t.B, payload)
		return
	}
	t.B = append(t.B, '"')
	t.B = base64.StdEncoding.AppendEncode(t.B, payload)
	t.B = append(t.B, '"')
}

// Size returns the length of the whole text.
func (t *Text) Size() int { return len(t.B) + t.more }

// Held returns how many bytes of memory the text needs, with the payloads that it refers to.
func (t *Text) Held() int {
	n := cap(t.B)
	for i := range t.parts {
		n += len(t.parts[i].payload)
	}
	return n
}

// Hash writes what makes the text different from others, which is shorter than the text.
func (t *Text) Hash(write func(p []byte) (int, error)) {
	at := 0
	for i := range t.parts {
		p := &t.parts[i]
		_, _ = write(t.B[at:p.at])
		_, _ = write(p.payload)
		at = p.at
	}
	_, _ = write(t.B[at:])
}

// Apart reports whether a payload of n bytes is held as it came, apart from the text.
func Apart(n int) bool { return n > apart }

// BytesOf returns the bytes of a string without a copy. They must not be changed.
func BytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
