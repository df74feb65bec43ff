package hotpath

import (
	"context"
	"encoding/base64"
	"sync"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
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

// A candidate is a job that may be in an answer.
type candidate struct {
	id        ident.ID
	untouched bool // Redis has it as it was put there
	msg       *durable.Message
	size      int // as shown
	state     durable.JobState
	over      bool
}

// look finds messages and states of candidates, as many from the front as fit into
// one answer: those before n, which are over where they have no message. Nothing
// was loaded for the others.
func (p *puller) look(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, cs []candidate, generation uint64) (n int, err error) {
	var doubtful []ident.ID
	for i := range cs {
		c := &cs[i]
		var fresh bool
		if c.msg, fresh = p.recall(c.id, generation, c.untouched); !fresh {
			doubtful = append(doubtful, c.id)
		}
	}
	var loaded map[ident.ID]*durable.Message
	read := 0
	if len(doubtful) > 0 {
		if loaded, read, err = p.load(ctx, ch, k, cs, doubtful); err != nil {
			return 0, err
		}
	}
	var full portion
	for n = range cs {
		c := &cs[n]
		switch {
		case c.over:
			continue
		case c.msg == nil && read == 0:
			return n, nil
		case c.msg == nil:
			read--
			if c.msg = loaded[c.id]; c.msg == nil { // removed
				c.over = true
				continue
			}
		}
		if c.size = shownSize(c.msg); !full.add(c.size) {
			return n, nil
		}
	}
	return len(cs), nil
}

// load asks the store for the states of the doubtful, and for the messages that
// are missing: it has looked for the first read of those.
func (p *puller) load(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, cs []candidate, doubtful []ident.ID) (found map[ident.ID]*durable.Message, read int, err error) {
	states, err := p.store.JobStates(ctx, k.No, doubtful)
	if err != nil {
		return nil, 0, err
	}
	var missing []ident.ID
	for i := range cs {
		c := &cs[i]
		c.state = states[c.id]
		if c.state.Status == durable.Delivered || c.state.Status == durable.Dead {
			c.over, c.msg = true, nil
		} else if c.msg == nil {
			missing = append(missing, c.id)
		}
	}
	if len(missing) == 0 {
		return nil, 0, nil
	}
	msgs, read, err := p.store.MessagesUpTo(ctx, ch.No, missing, answerBytes)
	if err != nil {
		return nil, 0, err
	}
	found = make(map[ident.ID]*durable.Message, len(msgs))
	for i := range msgs {
		found[msgs[i].ID] = &msgs[i]
	}
	return found, read, nil
}

// A fits remembers for each consumer how many jobs at once are worth asking for: a
// few where their messages are large, so that hundreds are not claimed, looked at
// and given back for each one that has room. Only those that did not fit are in it.
type fits struct {
	mu   sync.Mutex
	most map[uint32]int
}

// of returns n, or what is worth asking for instead.
func (f *fits) of(consumer uint32, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if most, known := f.most[consumer]; known {
		return min(n, most)
	}
	return n
}

// learn is told that of got jobs fit had room.
func (f *fits) learn(consumer uint32, got, fit int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most, known := f.most[consumer]
	switch {
	case fit < got:
		if f.most == nil {
			f.most = map[uint32]int{}
		}
		f.most[consumer] = 2 * max(fit, 1)
	case known && got >= most:
		if f.most[consumer] = 4 * most; 4*most >= maxClaimed {
			delete(f.most, consumer)
		}
	}
}
