package journal

import (
	"slices"
	"time"
)

// A span is consecutive entries of a part whose receipts are consecutive too. Both differ where the
// entries were written again.
type span struct {
	p        *part
	from, to uint64
	receipt  uint64 // the place in the receipt of the first one
}

// spans are entries in the order in which they came.
type spans []span

// push adds an entry at the end.
func (all spans) push(p *part, seq, receipt uint64) spans {
	if n := len(all); n > 0 {
		if s := &all[n-1]; s.p == p && s.to+1 == seq && s.receipt+(s.to-s.from)+1 == receipt {
			s.to = seq
			return all
		}
	}
	return append(all, span{p, seq, seq, receipt})
}

// pop removes the first entry.
func (all spans) pop() spans {
	if all[0].from < all[0].to {
		all[0].from++
		all[0].receipt++
		return all
	}
	return all[1:]
}

// has reports whether the entry of a receipt is among them.
func (all spans) has(receipt uint64) bool {
	return slices.ContainsFunc(all, func(s span) bool { return s.receipt <= receipt && receipt-s.receipt <= s.to-s.from })
}

// A holding is what is held of a channel.
type holding struct {
	all      spans
	messages int64
	bytes    int64
}

// A usage is what a channel has in a journal, or in a part of it.
type usage struct {
	waiting int64 // entries that are neither over nor held
	bytes   int64 // of entries that are not over
}

// usages are those of channels.
type usages map[uint32]usage

func (u usages) add(channel uint32, waiting, bytes int64) {
	one := u[channel]
	one.waiting += waiting
	one.bytes += bytes
	if u[channel] = one; one == (usage{}) {
		delete(u, channel)
	}
}

// hold holds an entry behind the cursor. It needs j.mu.
func (j *Journal) hold(e *Entry) {
	h := j.held[e.Msg.ChannelNo]
	if h == nil {
		h = &holding{}
		j.held[e.Msg.ChannelNo] = h
	}
	h.all = h.all.push(e.part, e.Seq, e.Receipt.seq())
	h.messages++
	h.bytes += e.bytes
	e.part.held++
}

// Release makes Read return again what is held of a channel.
func (j *Journal) Release(channel uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.held[channel]
	if h == nil {
		return
	}
	delete(j.held, channel)
	for _, s := range h.all {
		j.again = append(j.again, s)
		n := int64(s.to - s.from + 1)
		j.count(s.p, channel, n, 0)
		j.waiting += n
	}
}

// moveAfter is the time for which a disk is left alone that does not take what is held.
const moveAfter = 5 * time.Second

// Move keeps nothing behind what is held: held entries that are in one file with entries which are
// over are written again, into a file of their own, and the old file is removed. Otherwise the
// entries that are over would be drained by the next start, and stored again once the store has
// forgotten their receipts.
//
// A crash between the two leaves an entry at both places. The next start drains both; the store
// finds the second one by the receipt, or by its identity.
func (j *Journal) Move() {
	if time.Since(j.moveFailed) < moveAfter {
		return
	}
	for p := j.mixed(); p != nil; p = j.mixed() {
		if err := j.move(p); err != nil {
			j.moveFailed = time.Now()
			j.log.Warn("messages of paused channels keep a file of the journal", "file", j.path(p), "error", err)
			return
		}
	}
}

// mixed returns a part that was read, with entries that are held and others.
func (j *Journal) mixed() *part {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.again) > 0 || j.closed {
		return nil
	}
	for _, p := range j.parts {
		if p.cursor == p.last && p.held > 0 && p.held < p.entries() && (p != j.writing || !j.appending) {
			return p
		}
	}
	return nil
}

// move writes the held entries of a part again.
func (j *Journal) move(p *part) error {
	a, old := newAppending(true), []*Entry(nil)
	for _, seq := range j.heldIn(p) {
		e, err := j.entry(p, seq)
		if err != nil {
			return err
		}
		if e.Lost {
			j.unhold(p, seq)
			return nil // Read returns it, and the next call goes on
		}
		r := e.Record
		r.origin = e.Receipt
		if a.add(&r); a.bytes >= appendBytes {
			if err := j.moved(p, a, old, e); err != nil {
				return err
			}
			a, old = newAppending(true), nil
			continue
		}
		old = append(old, e)
	}
	return j.moved(p, a, old)
}

// moved appends entries again and forgets their old places.
func (j *Journal) moved(p *part, a *appending, old []*Entry, last ...*Entry) error {
	old = append(old, last...)
	if len(old) == 0 {
		return nil
	}
	if err := j.enqueue(a); err != nil {
		return err
	}
	<-a.done
	if a.err != nil {
		return a.err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	places := make(map[uint64]uint64, len(old))
	for i, e := range old {
		places[e.Seq] = a.part.info.BaseIndex + uint64(i)
		j.count(p, e.Msg.ChannelNo, 0, -e.bytes)
		j.count(a.part, e.Msg.ChannelNo, 0, e.bytes)
	}
	for _, h := range j.held {
		var all spans
		for _, s := range h.all {
			for seq := s.from; seq <= s.to; seq++ {
				if at, ok := places[seq]; ok && s.p == p {
					all = all.push(a.part, at, s.receipt+(seq-s.from))
				} else {
					all = all.push(s.p, seq, s.receipt+(seq-s.from))
				}
			}
		}
		h.all = all
	}
	n := int64(len(old))
	p.held -= n
	a.part.held += n
	a.part.order = old[0].Receipt.seq()
	j.parts = slices.DeleteFunc(j.parts, func(q *part) bool { return q == a.part })
	j.parts = slices.Insert(j.parts, slices.Index(j.parts, p), a.part)
	j.sweep()
	return nil
}

// heldIn returns the places of the held entries of a part, in order.
func (j *Journal) heldIn(p *part) (all []uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, h := range j.held {
		for _, s := range h.all {
			for seq := s.from; s.p == p && seq <= s.to; seq++ {
				all = append(all, seq)
			}
		}
	}
	slices.Sort(all)
	return all
}

// unhold makes Read return an entry that was held and is lost.
func (j *Journal) unhold(p *part, lost uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for channel, h := range j.held {
		var all spans
		for _, s := range h.all {
			for seq := s.from; seq <= s.to; seq++ {
				if s.p == p && seq == lost {
					j.again = j.again.push(p, seq, s.receipt+(seq-s.from))
					j.waiting++
					h.bytes -= h.bytes / h.messages
					h.messages--
					continue
				}
				all = all.push(s.p, seq, s.receipt+(seq-s.from))
			}
		}
		if h.all = all; len(all) == 0 {
			delete(j.held, channel)
		}
	}
}
