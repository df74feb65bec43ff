package pull

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// answerBytes bounds the messages in one answer to a pull consumer, measured as JSON. The first
// message is always included. Messages that do not fit stay for the next request.
const answerBytes = 8 << 20

// A portion counts the messages that fit into one answer.
type portion struct {
	messages int
	bytes    int // an estimate, rather too high
}

// add counts a message whose JSON has size bytes. It returns false if the answer is full.
func (p *portion) add(size int) bool {
	if p.messages > 0 && p.bytes+size > answerBytes {
		return false
	}
	p.messages++
	p.bytes += size
	return true
}

// shownSize returns an upper bound for the length of appendMessage's output, with room for the
// surrounding members. It is exact for the payload, which escaping can make six times as long.
func shownSize(m *durable.Message) int {
	const around = 768 // with the ID of the producer
	return around + len(m.Key) + 6*(len(m.Headers)+len(m.ContentType)) + shownPayload(m)
}

// A large is the payload of a message that an answer.Text holds apart from itself: its bytes as JSON,
// and in memory.
type large struct{ shown, kept int }

func apart(m *durable.Message) large {
	if !answer.Apart(len(m.Payload)) {
		return large{}
	}
	return large{shownPayload(m), len(m.Payload)}
}

func shownPayload(m *durable.Message) int {
	if !utf8.Valid(m.Payload) {
		return base64.StdEncoding.EncodedLen(len(m.Payload))
	}
	return jsontext.Size(m.Payload)
}

// look verifies candidates from the front, as many as fit into one answer, and returns the JSON
// size of each. The size is 0 for a job that is not delivered. The payloads that it loads are
// bounded by answerBytes, or one message.
func (p *Puller) look(ctx context.Context, k *durable.Consumer, cs []verify.Candidate, incarnation uint64) (sizes []int,
	err error) {
	for i := range cs {
		p.verifier.Fresh(k, &cs[i], incarnation)
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
