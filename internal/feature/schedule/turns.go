package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// turns are what is due where that is more than a page, while one pass sends it. Each turn has a part
// for every producer: of a page, and at least one message. The producer's channels share it.
type turns struct {
	lines  map[durable.DueLine]*line
	listed []durable.DueLine // those with a message that is due, by producer and channel
	at     time.Time         // when they were listed
	took   time.Duration
	last   map[uint32]uint32 // producer -> the channel that it begins behind
}

// A line is what is due of one producer in one channel.
type line struct {
	after durable.Due   // up to which it was read: what cannot be sent holds up nothing behind it
	due   []durable.Due // read and not sent
}

const (
	// listAgain bounds the time that the lists of lines take: a fifth.
	listAgain = 4
	// passFor is the time after which a pass begins anew. What failed is tried again then, and what came
	// behind the place up to which its line was read is found.
	passFor = time.Second
)

// passInTurns sends one message of each schedule that is due, and returns how many it sent. What
// becomes due meanwhile has its turn. It ends early if that takes long.
func (m *Mover) passInTurns(ctx context.Context) (sent int, err error) {
	t := &turns{lines: map[durable.DueLine]*line{}, last: map[uint32]uint32{}}
	var failure error
	for began := time.Now(); ctx.Err() == nil && (sent == 0 || time.Since(began) < m.passFor); {
		ids, bytes, err := m.turn(ctx, t)
		if err != nil || len(ids) == 0 {
			return sent, errors.Join(failure, err)
		}
		for len(ids) > 0 {
			n, sum := 0, 0
			for n < len(ids) && n < page && (n == 0 || sum+bytes[n] <= pageBytes) {
				sum += bytes[n]
				n++
			}
			done, err := m.sendPage(ctx, ids[:n])
			sent += done
			if err != nil {
				failure = err
			}
			ids, bytes = ids[n:], bytes[n:]
		}
	}
	return sent, errors.Join(failure, ctx.Err())
}

// turn returns the messages of the next turn, none at the end.
func (m *Mover) turn(ctx context.Context, t *turns) (ids []ident.ID, bytes []int, err error) {
	until := m.until()
	for fresh := false; len(ids) == 0 && !fresh; {
		if fresh = time.Since(t.at) >= listAgain*t.took || len(t.listed) == 0; fresh {
			if err := m.list(ctx, t, until); err != nil {
				return nil, nil, err
			}
		}
		if err := m.read(ctx, t, until); err != nil {
			return nil, nil, err
		}
		producers := t.producers()
		for _, lines := range producers {
			for _, d := range t.part(lines, len(producers)) {
				ids, bytes = append(ids, d.ID), append(bytes, d.Bytes)
			}
		}
		if len(ids) == 0 && !fresh {
			t.listed = nil // there may be others by now
		}
	}
	return ids, bytes, nil
}

// list reads which lines have something due. Those of paused channels wait.
func (m *Mover) list(ctx context.Context, t *turns, untilMs int64) error {
	began := time.Now()
	listed, err := m.Store.DueLines(ctx, untilMs)
	if err != nil {
		return err
	}
	t.at, t.took = time.Now(), time.Since(began)
	t.listed = slices.DeleteFunc(listed, func(l durable.DueLine) bool { return m.paused(l.ChannelNo) })
	return nil
}

// read reads ahead for the lines that have nothing left.
func (m *Mover) read(ctx context.Context, t *turns, untilMs int64) error {
	var ask []durable.DueTurn
	producers := t.producers()
	for _, lines := range producers {
		for _, l := range lines {
			if of := t.line(l); len(of.due) == 0 {
				ask = append(ask, durable.DueTurn{DueLine: l, After: of.after, Limit: max(page/len(producers)/len(lines), 1)})
			}
		}
	}
	due, err := m.Store.DueOfLines(ctx, untilMs, ask)
	for _, d := range due {
		of := t.line(d.DueLine)
		of.due, of.after = append(of.due, d), d
	}
	return err
}

func (t *turns) line(l durable.DueLine) *line {
	of := t.lines[l]
	if of == nil {
		of = &line{}
		t.lines[l] = of
	}
	return of
}

// producers returns the lines of each producer.
func (t *turns) producers() (out [][]durable.DueLine) {
	for begin, i := 0, 1; i <= len(t.listed); i++ {
		if i == len(t.listed) || t.listed[i].ProducerNo != t.listed[begin].ProducerNo {
			out, begin = append(out, t.listed[begin:i]), i
		}
	}
	return out
}

// part takes what one of several producers sends in this turn, from its channels in turn.
func (t *turns) part(lines []durable.DueLine, producers int) (out []durable.Due) {
	no := lines[0].ProducerNo
	begin := slices.IndexFunc(lines, func(l durable.DueLine) bool { return l.ChannelNo > t.last[no] })
	left := pageBytes / producers
	for i, empty := max(begin, 0), 0; empty < len(lines) && len(out) < max(page/producers, 1); i++ {
		l := lines[i%len(lines)]
		of := t.lines[l]
		if len(of.due) == 0 {
			empty++
			continue
		}
		if left -= of.due[0].Bytes; left < 0 && len(out) > 0 {
			break
		}
		empty = 0
		out, of.due = append(out, of.due[0]), of.due[1:]
		t.last[no] = l.ChannelNo
	}
	return out
}
