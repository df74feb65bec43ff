package journal

import (
	"errors"

	"github.com/hashicorp/raft-wal/types"
)

// ErrForeign means that the journal was written by brokers of another store.
var ErrForeign = errors.New("journal: it belongs to another store")

// A stretch is consecutive entries of a part that are to be read.
type stretch struct {
	p        *part
	from, to uint64
	again    bool // they were held
}

// stretches returns what is to be read: first what was held and is due again, since it is older.
func (j *Journal) stretches() (all []stretch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.again {
		all = append(all, stretch{s.p, s.from, s.to, true})
	}
	for _, p := range j.parts {
		if p.last > p.cursor {
			all = append(all, stretch{p, p.cursor + 1, p.last, false})
		}
	}
	if len(all) == 0 {
		j.cached, j.cache = nil, nil
		if !j.closed {
			j.sweep() // a failed write gives up a file whose entries became over while it was under way
		}
	}
	return all
}

// Read returns entries that are neither over nor held, in order: up to most, and no more than bytes
// except the first. It returns the same ones until Settle. One goroutine at a time reads, settles,
// releases and moves.
func (j *Journal) Read(most, bytes int) (out []*Entry, err error) {
	if j.foreign {
		return nil, ErrForeign
	}
	size := 0
	for _, s := range j.stretches() {
		for seq := s.from; seq <= s.to; seq++ {
			if len(out) >= most || len(out) > 0 && size > bytes {
				return j.read(out), nil
			}
			e, err := j.entry(s.p, seq)
			if err != nil && len(out) == 0 {
				return nil, err
			}
			if err != nil {
				return j.read(out), nil // those first
			}
			e.again = s.again
			if !e.Lost {
				size += e.Msg.Bytes()
			}
			out = append(out, e)
		}
	}
	return j.read(out), nil
}

// read notes the age of the oldest entry that waits. Those that were held do not count: nothing else
// waits behind them.
func (j *Journal) read(out []*Entry) []*Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range out {
		if !e.again && e.Receipt.seq() == e.Seq {
			j.oldestMs = e.Receipt.Ms()
			break
		}
	}
	return out
}

// entry returns an entry of a part. One that the disk does not return as it was written is lost.
func (j *Journal) entry(p *part, seq uint64) (*Entry, error) {
	j.mu.Lock()
	w := p.open
	j.mu.Unlock()
	if w != nil {
		if e, err := stillOpen(w, seq); err == nil { // else it is closed by now, or damaged
			e.part = p
			return e, nil
		}
	}
	if j.cached != p || w != nil && j.cache.next <= seq {
		s, err := j.scan(&part{info: p.info, twice: p.twice}, w != nil)
		if err != nil {
			return nil, err
		}
		j.mu.Lock()
		j.cached, j.cache = p, s
		j.mu.Unlock()
	}
	e, s := &Entry{Seq: seq, Lost: true}, j.cache
	i := int(seq - s.base)
	if seq < s.next {
		if at := s.places[i]; at.at > 0 {
			if got, err := decode(seq, s.data[at.at:at.at+at.size]); err == nil {
				e = got
			}
		}
	}
	if e.Lost {
		e.Receipt = s.lost(i)
		e.Elsewhere = j.elsewhere[seq]
	}
	e.part = p
	j.mu.Lock()
	if p.pieces = max(p.pieces, j.cache.pieces); e.Lost {
		p.pieces = max(p.pieces, 1)
	}
	j.mu.Unlock()
	return e, nil
}

func stillOpen(w types.SegmentWriter, seq uint64) (*Entry, error) {
	b, err := w.GetLog(seq)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return decode(seq, b.Bs)
}

// Settle moves on over entries that Read has returned, in their order from the first: each is over,
// or Held. Files whose entries are all over are removed.
func (j *Journal) Settle(entries []*Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		p := e.part
		j.waiting--
		if e.again {
			j.again = j.again.pop()
			p.held--
		} else {
			p.cursor = e.Seq
		}
		switch {
		case e.Lost:
		case e.Held:
			j.count(p, e.Msg.ChannelNo, -1, 0)
			j.hold(e)
		default:
			j.count(p, e.Msg.ChannelNo, -1, -e.bytes)
		}
	}
	j.oldestMs = 0
	j.sweep()
}

// count changes what a channel has in a part. It needs j.mu.
func (j *Journal) count(p *part, channel uint32, waiting, bytes int64) {
	p.usage.add(channel, waiting, bytes)
	j.usage.add(channel, waiting, bytes)
}
