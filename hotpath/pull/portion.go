package pull

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/jsontext"
)

// answerBytes bounds the messages in one answer to a pull consumer, as JSON shows
// them. The first is in it whatever its size; what does not fit waits for the
// next request.
const answerBytes = 8 << 20

// A portion is what fits into one answer.
type portion struct {
	messages int
	bytes    int // about, and rather too many
}

// add counts a message that is shown in size bytes, unless the answer is full.
func (p *portion) add(size int) bool {
	if p.messages > 0 && p.bytes+size > answerBytes {
		return false
	}
	p.messages++
	p.bytes += size
	return true
}

// shownSize returns how much appendMessage appends at most, with some room for
// what stands around it. It is exact for the payload, which escaping can make six times
// as long.
func shownSize(m *durable.Message) int {
	const around = 512
	size := around + len(m.Key) + 6*(len(m.Headers)+len(m.ContentType))
	if !utf8.Valid(m.Payload) {
		return size + base64.StdEncoding.EncodedLen(len(m.Payload))
	}
	return size + jsontext.Size(m.Payload)
}

// look decides the candidates, as many from the front as fit into one answer, and returns how
// long each of those is in it. Nothing was loaded for the others.
func (p *Puller) look(ctx context.Context, k *durable.Consumer, cs []verify.Candidate, generation uint64) (sizes []int, err error) {
	for i := range cs {
		p.verifier.Fresh(&cs[i], generation)
	}
	n, err := p.verifier.Verify(ctx, k, cs, answerBytes)
	if err != nil {
		return nil, err
	}
	sizes = make([]int, n)
	var full portion
	for i, c := range cs[:n] {
		if c.Verdict != verify.Deliver {
			continue
		}
		if sizes[i] = shownSize(c.Message); !full.add(sizes[i]) {
			sizes = sizes[:i]
			break
		}
	}
	p.fits.Learn(k.No, len(cs), len(sizes))
	return sizes, nil
}
