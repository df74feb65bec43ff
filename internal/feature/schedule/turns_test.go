package schedule

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A calendar is a store in memory. All of it is due.
type calendar struct {
	Store
	waiting map[ident.ID]*durable.Scheduled
	sent    []*durable.Scheduled // in their order
	refuse  func(s *durable.Scheduled) error
	after   func() // each publish
}

var errRefused = errors.New("refused")

func newCalendar() (*calendar, *Mover) {
	c := &calendar{waiting: map[ident.ID]*durable.Scheduled{}, refuse: func(*durable.Scheduled) error {
		return nil
	}, after: func() {}}
	log := slog.New(slog.DiscardHandler)
	m := New(Options{Store: c, Catalogue: catalogue.New(nil, log), Cluster: clock{}, Publish: c.publish, Log: log})
	m.passFor = time.Hour
	return c, m
}

type clock struct{}

func (clock) Owns(uint32) bool { return true }
func (clock) PastMs() int64    { return 1_000_000 }

// add schedules n messages of a producer in a channel.
func (c *calendar) add(producer, channel uint32, n, bytes int, dueMs int64) {
	for range n {
		var id ident.ID
		binary.BigEndian.PutUint64(id[4:], uint64(len(c.waiting)+len(c.sent)+1))
		c.waiting[id] = &durable.Scheduled{DueMs: dueMs,
			Message: durable.Message{ID: id, ProducerNo: producer, ChannelNo: channel, Payload: make([]byte, bytes)}}
	}
}

func (c *calendar) DueSchedules(_ context.Context, nowMs int64, limit int) (out []durable.Due, err error) {
	for _, s := range c.waiting {
		if s.DueMs <= nowMs {
			out = append(out, durable.Due{DueLine: durable.DueLine{ProducerNo: s.ProducerNo, ChannelNo: s.ChannelNo}, ID: s.ID,
				AtMs: s.DueMs, Bytes: len(s.Payload)})
		}
	}
	slices.SortFunc(out, durable.Due.Compare)
	return out[:min(len(out), limit)], nil
}

func (c *calendar) DueLines(_ context.Context, nowMs int64) ([]durable.DueLine, error) {
	lines := map[durable.DueLine]bool{}
	for _, s := range c.waiting {
		if s.DueMs <= nowMs {
			lines[durable.DueLine{ProducerNo: s.ProducerNo, ChannelNo: s.ChannelNo}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(lines), func(a, b durable.DueLine) int {
		return int(a.ProducerNo)*1000 + int(a.ChannelNo) - int(b.ProducerNo)*1000 - int(b.ChannelNo)
	}), nil
}

func (c *calendar) DueOfLines(ctx context.Context, nowMs int64, turns []durable.DueTurn) (out []durable.Due,
	err error) {
	all, err := c.DueSchedules(ctx, nowMs, len(c.waiting))
	for _, t := range turns {
		n := 0
		for _, d := range all {
			if d.DueLine == t.DueLine && d.Compare(t.After) > 0 && n < t.Limit {
				out = append(out, d)
				n++
			}
		}
	}
	return out, err
}

func (c *calendar) ScheduledRows(_ context.Context, ids []ident.ID) (out []*durable.Scheduled, err error) {
	for _, id := range ids {
		if s := c.waiting[id]; s != nil {
			out = append(out, s)
		}
	}
	return out, nil
}

func (c *calendar) publish(_ context.Context, msgs []*durable.Message) []error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		s := c.waiting[m.Occurrence.Of]
		if errs[i] = c.refuse(s); errs[i] == nil {
			delete(c.waiting, s.ID)
			c.sent = append(c.sent, s)
		}
	}
	c.after()
	return errs
}

// place returns after how many others the last message of a line was sent.
func (c *calendar) place(producer, channel uint32) int {
	for i := range slices.Backward(c.sent) {
		if c.sent[i].ProducerNo == producer && c.sent[i].ChannelNo == channel {
			return i
		}
	}
	return -1
}

func TestProducersAndTheirChannelsHaveTurns(t *testing.T) {
	c, m := newCalendar()
	c.add(1, 1, 5000, 1, 1)
	c.add(1, 2, 100, 1, 2)
	c.add(1, 3, 100, 1, 3)
	c.add(2, 1, 200, 1, 4)
	c.add(2, 9, 1, 1, 5)
	sent, err := m.pass(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Equal(t, 5401, sent)
	require.Empty(t, c.waiting)
	require.Less(t, c.place(2, 1), 2*page, "another producer in the same channel")
	require.Less(t, c.place(2, 9), page, "another producer in another channel")
	require.Less(t, c.place(1, 2), 3*page, "the same producer in another channel")
	require.Less(t, c.place(1, 3), 3*page)
}

func TestLargeScheduledMessagesHaveTurnsByTheirBytes(t *testing.T) {
	c, m := newCalendar()
	c.add(1, 1, 60, pageBytes/2+1, 1)
	c.add(2, 2, 20, 100_000, 2)
	c.add(3, 3, 1, 2*pageBytes, 3)
	_, err := m.pass(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Empty(t, c.waiting)
	require.Less(t, c.place(2, 2), 25, "two turns")
	require.Less(t, c.place(3, 3), 15, "the first turn")
}

func TestMoreProducersThanAPageHaveAMessageEach(t *testing.T) {
	c, m := newCalendar()
	c.add(1, 1, 3000, 1, 1)
	for no := range uint32(2 * page) {
		c.add(no+2, 1, 1, 1, 2)
	}
	_, err := m.pass(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Empty(t, c.waiting)
	for no := range uint32(2 * page) {
		require.LessOrEqual(t, c.place(no+2, 1), 2*page)
	}
}

func TestWhatBecomesDueDuringALongPassHasItsTurn(t *testing.T) {
	c, m := newCalendar()
	c.add(1, 1, 5000, 1, 1)
	added := false
	c.after = func() {
		if !added {
			c.add(2, 2, 1, 1, 999_999)
		}
		added = true
	}
	_, err := m.pass(t.Context(), 1_000_000)
	require.NoError(t, err)
	require.Empty(t, c.waiting)
	require.Less(t, c.place(2, 2), 3*page)
}

func TestAScheduledMessageThatIsRefusedHoldsNothingUp(t *testing.T) {
	c, m := newCalendar()
	c.add(1, 1, 2000, 1, 1)
	c.add(2, 2, 1500, 1, 2)
	c.refuse = func(s *durable.Scheduled) error {
		if s.ProducerNo == 1 && s.ID[11]%2 == 0 {
			return errRefused
		}
		return nil
	}
	sent, err := m.pass(t.Context(), 1_000_000)
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, 2500, sent)
	c.refuse = func(*durable.Scheduled) error { return errRefused }
	sent, err = m.pass(t.Context(), 1_000_000)
	require.ErrorIs(t, err, errRefused, "the pass ends where nothing can be sent")
	require.Zero(t, sent)
}
