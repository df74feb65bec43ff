package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A shelf is messages of one payload each. It reads at most two at once.
type shelf map[ident.ID]string

func (s shelf) MessagesUpTo(_ context.Context, _ uint32, ids []ident.ID, _ int) (msgs []durable.Message, read int,
	err error) {
	for _, id := range ids[:min(2, len(ids))] {
		if payload, ok := s[id]; ok {
			msgs = append(msgs, durable.Message{ID: id, Payload: []byte(payload)})
		}
	}
	return msgs, min(2, len(ids)), nil
}

func TestAMatcherStopsAtItsBoundsAndAlwaysGetsOn(t *testing.T) {
	gen := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	s := shelf{}
	var ids []ident.ID
	for _, payload := range []string{`{"a":1}`, `{"a":2}`, "", `{"a":"x"}`, `{"a":1}`, "none", `{"a":1}`} {
		id := gen.Next()
		ids = append(ids, id)
		if payload != "none" {
			s[id] = payload
		}
	}
	matcher := func(bytes int, until time.Time) *Matcher {
		return &Matcher{Store: s, Filter: filter.Of("payload.a == 1"), Bytes: bytes, Until: until,
			Seen: func(m *durable.Message) filter.Message { return filter.Message{Payload: m.Payload} }}
	}
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		bytes       int
		until       time.Time
		read, match int
	}{
		{1 << 20, later, 7, 3},
		{1, later, 2, 1},            // what one statement has read is examined
		{15, later, 4, 1},           //
		{1 << 20, time.Now(), 1, 1}, // the first message alone
		{-1, later, 2, 1},
	} {
		got := matcher(c.bytes, c.until)
		match, read, err := got.Match(t.Context(), 1, ids)
		require.NoError(t, err)
		require.Equal(t, c.read, read)
		require.Len(t, match, c.match)
		require.Equal(t, read < len(ids), got.Spent())
	}
	after := matcher(1, later)
	_, read, err := after.Match(t.Context(), 1, ids[5:6])
	require.NoError(t, err)
	require.Equal(t, 1, read, "a message that is gone is examined")
}

// A countStore has one delivered message a ms, of one byte.
type countStore struct {
	shelf
	heads []durable.Sized
	slow  time.Duration
}

func (s *countStore) Sizes(_ context.Context, _ uint32, after, _ ident.ID, limit int) ([]durable.Sized, error) {
	from := 0
	for from < len(s.heads) && s.heads[from].ID.Compare(after) <= 0 {
		from++
	}
	return s.heads[from:min(from+limit, len(s.heads))], nil
}

func (s *countStore) JobStates(_ context.Context, _ uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error) {
	out := map[ident.ID]durable.JobState{}
	for _, id := range ids {
		out[id] = durable.JobState{Status: durable.Delivered}
	}
	return out, nil
}

func (s *countStore) MessagesUpTo(ctx context.Context, no uint32, ids []ident.ID, budget int) ([]durable.Message,
	int, error) {
	time.Sleep(s.slow)
	return s.shelf.MessagesUpTo(ctx, no, ids, budget)
}

func TestACountWithAFilterIsBoundedAndExtrapolates(t *testing.T) {
	s := &countStore{shelf: shelf{}}
	for i := range 3000 {
		id := ident.AtMillis(int64(1_000_000 + i))
		s.heads = append(s.heads, durable.Sized{Head: durable.Head{ID: id, Audience: 1}, Bytes: 10})
		s.shelf[id] = `{"a":1}`
		if i%2 == 1 {
			s.shelf[id] = `{"a":2}`
		}
	}
	r := &durable.Replay{After: ident.AtMillis(999_999), Through: ident.AtMillis(1_002_999)}
	matcher := func() *Matcher {
		return &Matcher{Filter: filter.Of("payload.a == 1"), Seen: func(m *durable.Message) filter.Message {
			return filter.Message{Payload: m.Payload}
		}}
	}
	k := &durable.Consumer{No: 1, ChannelNo: 1}
	c, err := CountReplay(t.Context(), s, k, r, matcher())
	require.NoError(t, err)
	require.Equal(t, ReplayCount{Messages: 1500, Bytes: 15_000}, c)
	s.slow = 20 * time.Millisecond // 30 s for all
	begun := time.Now()
	c, err = CountReplay(t.Context(), s, k, r, matcher())
	require.NoError(t, err)
	require.True(t, c.Estimated)
	require.InDelta(t, 1500, c.Messages, 100)
	require.Less(t, time.Since(begun), 15*time.Second)
}
