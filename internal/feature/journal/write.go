package journal

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// An appending is a call of Append.
type appending struct {
	entries  [][]byte
	bytes    int64
	usage    usages
	apart    bool      // of entries that are written again, into a file of their own
	part     *part     // that file
	origins  []Receipt // of its entries, that their producers have
	receipts []Receipt
	err      error
	done     chan struct{}
}

func newAppending(apart bool) *appending {
	return &appending{apart: apart, usage: usages{}, done: make(chan struct{})}
}

func (a *appending) add(r *Record) {
	b := r.encode()
	a.entries = append(a.entries, b)
	n := int64(len(b)) + entryOverhead
	a.bytes += n
	a.usage.add(r.Msg.ChannelNo, 1, n)
	if a.apart {
		a.origins = append(a.origins, r.origin)
	}
}

// reserve counts what waits for its flush, or with -1 what does not any more. What is written again
// is counted already.
func (j *Journal) reserve(a *appending, sign int64) {
	if a.apart {
		return
	}
	j.reserved += sign * a.bytes
	for channel, u := range a.usage {
		j.usage.add(channel, sign*u.waiting, sign*u.bytes)
	}
}

// write appends what is queued until the journal is closed: everything that waits shares a flush.
func (j *Journal) write() {
	defer close(j.stopped)
	for {
		batch := j.next()
		if len(batch) == 0 {
			return
		}
		err := j.flush(batch)
		for _, a := range batch {
			a.err = err
			close(a.done)
		}
		if err == nil {
			select {
			case j.more <- struct{}{}:
			default:
			}
		}
	}
}

// next waits for calls of Append and returns those that share the next flush.
func (j *Journal) next() []*appending {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) == 0 {
		if j.closed {
			return nil
		}
		j.wake.Wait()
	}
	n, bytes := 0, int64(0)
	for n < len(j.queue) && (n == 0 || bytes+j.queue[n].bytes <= appendBytes && !j.queue[n].apart) {
		bytes += j.queue[n].bytes
		if n++; j.queue[n-1].apart {
			break
		}
	}
	batch := j.queue[:n:n]
	j.queue = append([]*appending(nil), j.queue[n:]...)
	return batch
}

// flush appends and flushes a batch. A crash before the end of the flush leaves a torn or
// unanswered write, which the next start drops or drains. After it the entries are drained.
func (j *Journal) flush(batch []*appending) error {
	apart := batch[0].apart
	j.mu.Lock()
	if apart {
		j.retire()
	}
	p, err := j.tail()
	if j.appending = err == nil; j.appending && apart {
		p.twice, p.receipts = true, int64(len(batch[0].origins)*ReceiptSize)
	}
	j.mu.Unlock()
	if err == nil && apart {
		err = j.writeReceipts(p, batch[0].origins)
	}
	if err != nil {
		j.failed(p, batch, err)
		return errors.Join(ErrFailed, err)
	}
	ms := time.Now().UnixMilli()
	var logs []types.LogEntry
	seq := p.last
	for _, a := range batch {
		a.receipts = make([]Receipt, len(a.entries))
		for i, b := range a.entries {
			seq++
			a.receipts[i] = newReceipt(ms, j.id, seq, j.sign)
			seal(b, a.receipts[i])
			logs = append(logs, types.LogEntry{Index: seq, Data: b})
		}
	}
	if err := p.open.Append(logs); err != nil {
		j.failed(p, batch, err)
		return errors.Join(ErrFailed, err)
	}
	failpoint.At(failpoint.JournalFlushed)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appending = false
	for _, a := range batch {
		j.flushed(p, a)
	}
	p.last, j.last = seq, seq
	if apart {
		p.cursor = seq
		batch[0].part = p
		j.retire()
		return nil
	}
	if j.waiting == 0 {
		j.oldestMs = ms
	}
	j.waiting += int64(len(logs))
	return nil
}

// flushed counts what is on disk. It needs j.mu.
func (j *Journal) flushed(p *part, a *appending) {
	bytes := a.bytes + int64(len(a.origins)*ReceiptSize)
	j.bytes += bytes
	p.bytes += bytes
	if a.apart {
		return
	}
	j.reserved -= a.bytes
	for channel, u := range a.usage {
		p.usage.add(channel, u.waiting, u.bytes)
	}
}

// failed gives up a file after a failed write or flush. Its earlier entries were flushed and stay.
// The places of the batch are not used again: the disk may show its entries at the next start.
func (j *Journal) failed(p *part, batch []*appending, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appending = false
	if !batch[0].apart {
		j.log.Error("the journal cannot be written; messages are refused until it can", "folder", j.dir, "error", err)
		j.failedAt = time.Now()
	}
	for _, a := range batch {
		j.reserve(a, -1)
		if p != nil {
			j.last = max(j.last, p.last) + uint64(len(a.entries))
		}
	}
	if p != nil {
		j.retire()
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
	base := max(j.last+1, uint64(time.Now().UnixMilli())*placesPerMs)
	p := &part{info: types.SegmentInfo{ID: j.nextID, BaseIndex: base, MinIndex: base, SizeLimit: uint32(j.segment)},
		order: base, usage: usages{}}
	w, err := j.filer.Create(p.info)
	if err != nil {
		return nil, err
	}
	j.nextID++
	p.open, p.last, p.cursor = w, base-1, base-1
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
		j.parts = slices.DeleteFunc(j.parts, func(q *part) bool { return q == p })
		j.drop(p)
	}
}
