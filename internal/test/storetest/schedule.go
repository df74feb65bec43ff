package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// plan returns a schedule that is not stored yet.
func (f *fixture) plan(ch durable.Channel, key string, dueMs int64) *durable.Scheduled {
	m := f.message(ch)
	m.Key = key
	return &durable.Scheduled{Message: *m, DueMs: dueMs}
}

func (f *fixture) schedule(t *testing.T, plans ...*durable.Scheduled) {
	t.Helper()
	for i, err := range f.Schedule(f.ctx, f.node, plans) {
		require.NoError(t, err, "%d", i)
	}
}

// occurrence returns the message that a schedule waits for.
func (f *fixture) occurrence(s *durable.Scheduled) *durable.Message {
	m := s.Message
	m.ID = f.ids.Next()
	if m.Idempotent() {
		m.Key = ""
	}
	m.Occurrence = &durable.Occurrence{Of: s.ID, No: s.No, NextNo: s.No + 1, Reserved: true, ChangedMs: s.ChangedMs}
	return &m
}

var scheduleTests = map[string]func(*testing.T, *fixture){
	"a schedule is stored with all its fields": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		plans := []*durable.Scheduled{f.plan(ch, "a", now+10), f.plan(ch, "", now+20), f.plan(ch, "b", now+5)}
		plans[0].Priority, plans[0].TTLMs, plans[0].Recurrence, plans[0].No = 7, 5000, "R/x", 3
		plans[0].DelayMs = 10
		plans[0].Headers, plans[0].Payload = []byte("x-a:b\n"), []byte{0, 255, '\''}
		f.schedule(t, plans...)
		f.schedule(t, plans...) // after a lost answer
		got, err := f.ScheduledByKey(f.ctx, ch.No, "a")
		require.NoError(t, err)
		want := *plans[0]
		want.Audience = 0
		require.Equal(t, want, *got)
		got, err = f.ScheduledByID(f.ctx, plans[1].ID)
		require.NoError(t, err)
		require.Equal(t, "", got.Key)
		_, err = f.ScheduledByKey(f.ctx, ch.No, "none")
		require.ErrorIs(t, err, durable.ErrNotFound)
		next, err := f.NextDue(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, now+5, next)
		due, err := f.DueSchedules(f.ctx, now+10, 10)
		require.NoError(t, err)
		require.Len(t, due, 2)
		require.Equal(t, []ident.ID{plans[2].ID, plans[0].ID}, []ident.ID{due[0].ID, due[1].ID})
		due, err = f.DueSchedules(f.ctx, now+20, 1)
		require.NoError(t, err)
		require.Equal(t, plans[2].ID, due[0].ID)
		counts, err := f.Count(f.ctx, ch.No, 2)
		require.NoError(t, err)
		require.Equal(t, durable.Counts{Waiting: 2, NextMs: now + 5}, counts)
		for _, limit := range []int{1, 3} {
			list, err := f.Schedules(f.ctx, ch.No, []durable.ScheduleStatus{durable.ScheduleWaiting, durable.ScheduleOver},
				plans[0], limit)
			require.NoError(t, err)
			require.Len(t, list, min(limit, 2))
			require.Equal(t, "a", list[0].Key)
		}
	},
	"schedules that are due are found by producer and channel": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		now := f.ids.Next().Millis()
		plan := func(ch durable.Channel, producer uint32, dueMs int64) *durable.Scheduled {
			s := f.plan(ch, "", dueMs)
			s.ProducerNo = producer
			return s
		}
		lines, err := f.DueLines(f.ctx, now)
		require.NoError(t, err)
		require.Empty(t, lines)
		var many []*durable.Scheduled
		for i := range 120 { // due at two times, the later one first
			many = append(many, plan(ch, 7, now-int64(i/60)))
		}
		f.schedule(t, append(many, plan(other, 7, now-5), plan(other, 3, now), plan(ch, 9, now+1), plan(other, 9, now-9))...)
		sent := plan(ch, 3, now)
		f.schedule(t, sent)
		f.insert(t, f.occurrence(sent))
		want := []durable.DueLine{{ProducerNo: 3, ChannelNo: other.No}, {ProducerNo: 7, ChannelNo: ch.No},
			{ProducerNo: 7, ChannelNo: other.No}, {ProducerNo: 9, ChannelNo: other.No}}
		lines, err = f.DueLines(f.ctx, now)
		require.NoError(t, err)
		require.Equal(t, want, lines, "neither what is sent nor what is not due")

		var turns []durable.DueTurn
		for range 20 { // more than one statement takes
			for _, l := range lines {
				turns = append(turns, durable.DueTurn{DueLine: l, Limit: 1})
			}
		}
		due, err := f.DueOfLines(f.ctx, now, turns)
		require.NoError(t, err)
		require.Len(t, due, len(turns))
		require.True(t, slices.IsSortedFunc(due, durable.Due.Compare))

		var read []durable.Due
		for after := (durable.Due{}); ; after = read[len(read)-1] {
			due, err := f.DueOfLines(f.ctx, now, []durable.DueTurn{{DueLine: want[1], After: after, Limit: 35}})
			require.NoError(t, err)
			if len(due) == 0 {
				break
			}
			read = append(read, due...)
		}
		require.Len(t, read, len(many), "a line page by page")
		require.True(t, slices.IsSortedFunc(read, durable.Due.Compare))
		for _, d := range read {
			require.Equal(t, want[1], d.DueLine)
			require.Positive(t, d.Bytes)
		}
		n, err := f.EndScheduled(f.ctx, 7, 1000)
		require.NoError(t, err)
		require.Equal(t, len(many)+1, n)
		lines, err = f.DueLines(f.ctx, now)
		require.NoError(t, err)
		require.Equal(t, []durable.DueLine{want[0], want[3]}, lines)
	},
	"a schedule that is due may be postponed": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		due, later, sent := f.plan(ch, "a", now), f.plan(ch, "b", now+5), f.plan(ch, "c", now)
		due.Recurrence = "R/x"
		f.schedule(t, due, later, sent)
		f.insert(t, f.occurrence(sent))
		for range 2 { // the second one changes nothing
			require.NoError(t, f.PostponeScheduled(f.ctx, []ident.ID{due.ID, later.ID, sent.ID}, now, now+100))
		}
		for s, want := range map[*durable.Scheduled]int64{due: now + 100, later: now + 5, sent: now} {
			got, err := f.ScheduledByID(f.ctx, s.ID)
			require.NoError(t, err)
			require.Equal(t, want, got.DueMs, s.Key)
			require.Equal(t, s.No, got.No)
		}
	},
	"the ID of a schedule is taken until it is deleted": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		later := f.ids.Next().Millis() + time.Hour.Milliseconds()
		first := f.plan(ch, "a", later)
		f.schedule(t, first)
		m := f.message(ch)
		m.Key = "a"
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], durable.ErrConflict)
		again, other, moved := f.plan(ch, "a", later), f.plan(ch, "a", later), f.plan(ch, "a", later+1)
		other.Payload = []byte("other")
		errs := f.Schedule(f.ctx, f.node, []*durable.Scheduled{again, f.plan(ch, "b", later), other, moved})
		requireDuplicate(t, errs[0], first.ID)
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], durable.ErrConflict)
		require.ErrorIs(t, errs[3], durable.ErrConflict)
		require.NoError(t, f.CancelScheduled(f.ctx, first.ID))
		require.ErrorIs(t, f.CancelScheduled(f.ctx, first.ID), durable.ErrNotFound)
		m.ID = f.ids.Next()
		f.insert(t, m)
		require.ErrorIs(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{f.plan(ch, "a", later)})[0], durable.ErrConflict)
	},
	"a delay is the same request later": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		plan := func(key string, sinceMs, delayMs int64, recurrence string) *durable.Scheduled {
			s := f.plan(ch, "", now+sinceMs+delayMs)
			s.Message = *f.keyed(ch, key, "one")
			if key == "id" {
				s.Key = "id"
			}
			s.DelayMs, s.FromNow, s.Recurrence = delayMs, true, recurrence
			return s
		}
		stored := func(s *durable.Scheduled) error { return f.Schedule(f.ctx, f.node, []*durable.Scheduled{s})[0] }
		for key, other := range map[string]error{"id": durable.ErrConflict, "k": durable.ErrReused} {
			first := plan(key, 0, 1000, "")
			f.schedule(t, first)
			absolute := plan(key, 0, 1000, "")
			absolute.DelayMs, absolute.FromNow = 0, false
			for range 2 { // while it waits, and when it was sent
				requireDuplicate(t, stored(plan(key, 500, 1000, "")), first.ID)
				require.ErrorIs(t, stored(plan(key, 0, 1001, "")), other)
				require.ErrorIs(t, stored(plan(key, -1, 1001, "")), other, "another delay until the same time")
				require.ErrorIs(t, stored(absolute), other, "the same time, given as a time")
				require.ErrorIs(t, stored(plan(key, 0, 1000, "R/x")), other)
				got, err := f.ScheduledByID(f.ctx, first.ID)
				require.NoError(t, err)
				require.Equal(t, first.DueMs, got.DueMs, "the time of the first request")
				if got.Status == durable.ScheduleWaiting {
					f.insert(t, f.occurrence(first))
				}
			}
		}
		first := plan("cron", 0, 0, "cron:* * * * *")
		f.schedule(t, first)
		requireDuplicate(t, stored(plan("cron", 60_000, 0, "cron:* * * * *")), first.ID)
	},
	"a schedule whose time is past is not stored and may repeat one that is": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		later := f.ids.Next().Millis() + time.Hour.Milliseconds()
		plan := func(key string, dueMs int64) *durable.Scheduled {
			s := f.plan(ch, key, dueMs)
			if key == "k" {
				s.Message = *f.keyed(ch, key, "one")
			}
			return s
		}
		first := []*durable.Scheduled{plan("a", later), plan("k", later)}
		f.schedule(t, first...)
		m := f.message(ch)
		m.Key = "sent"
		f.insert(t, m)
		past := []*durable.Scheduled{plan("a", later), plan("k", later), plan("a", later-1), plan("k", later-1),
			plan("sent", later), plan("b", later), plan("", later), plan("new", later)}
		for _, s := range past[:7] {
			s.Past = true
		}
		want := []error{nil, nil, durable.ErrConflict, durable.ErrReused, durable.ErrConflict, durable.ErrPast,
			durable.ErrPast, nil}
		for range 2 { // while the first ones wait, and when their messages are sent
			errs := f.Schedule(f.ctx, f.node, past)
			for i, s := range past {
				if i < len(first) {
					requireDuplicate(t, errs[i], first[i].ID)
					continue
				}
				require.ErrorIs(t, errs[i], want[i], "%d", i)
				_, err := f.ScheduledByID(f.ctx, s.ID)
				require.Equal(t, want[i] != nil, errors.Is(err, durable.ErrNotFound), "%d: %v", i, err)
			}
			if got, err := f.ScheduledByID(f.ctx, first[0].ID); got.Status == durable.ScheduleWaiting {
				require.NoError(t, err)
				f.insert(t, f.occurrence(first[0]), f.occurrence(first[1]))
			}
		}
		past[5].Past = false // its Key is still free
		f.schedule(t, past[5])

		batch := []*durable.Scheduled{plan("in order", later), plan("in order", later), plan("too early", later),
			plan("too early", later)}
		batch[1].Past, batch[2].Past = true, true
		errs := f.Schedule(f.ctx, f.node, batch)
		require.NoError(t, errs[0])
		requireDuplicate(t, errs[1], batch[0].ID)
		require.ErrorIs(t, errs[2], durable.ErrPast, "nothing had its Key when it came")
		require.NoError(t, errs[3])
	},
	"a schedule that waits is changed": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		hour := time.Hour.Milliseconds()
		s := f.plan(ch, "a", now+hour)
		s.Recurrence = "R/x"
		f.schedule(t, s)
		first := f.occurrence(s)
		first.Key, first.Occurrence.NextMs, first.Occurrence.Reserved = "a.1", now+hour, false
		f.insert(t, first)
		was, err := f.ScheduledByID(f.ctx, s.ID)
		require.NoError(t, err)
		require.Equal(t, 1, was.No)

		got, err := f.ChangeScheduled(f.ctx, durable.ScheduleChange{ID: s.ID, Times: &durable.Scheduled{DueMs: now + 2*hour,
			DelayMs: 7, Recurrence: "R/y"}})
		require.NoError(t, err)
		require.Positive(t, got.ChangedMs)
		want := *was
		want.DueMs, want.DelayMs, want.Recurrence, want.No, want.SentBefore, want.ChangedMs = now+
			2*hour, 7, "R/y", 0, 1, got.ChangedMs
		require.Equal(t, want, *got)
		stored, err := f.ScheduledByKey(f.ctx, ch.No, "a")
		require.NoError(t, err)
		require.Equal(t, want, *stored)
		next, err := f.NextDue(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, now+2*hour, next)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.occurrence(was)})[0], durable.ErrMoved,
			"what was due before the change")
		again := *was
		again.No = 0
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.occurrence(&again)})[0], durable.ErrMoved,
			"also with the same number")

		content := durable.Message{Priority: 9, TTLMs: 8, ContentType: "t", Headers: []byte("x-a:b\n"),
			Payload: []byte{0, 255, '\''}, Addressed: durable.Positions("\x80"), Key: "other", ChannelNo: 99}
		got, err = f.ChangeScheduled(f.ctx, durable.ScheduleChange{ID: s.ID, Content: &content})
		require.NoError(t, err)
		require.Greater(t, got.ChangedMs, want.ChangedMs)
		want.Priority, want.TTLMs, want.ContentType, want.Headers, want.Payload, want.Addressed, want.ChangedMs = 9, 8, "t",
			content.Headers, content.Payload, content.Addressed, got.ChangedMs
		stored, err = f.ScheduledByID(f.ctx, s.ID)
		require.NoError(t, err)
		require.Equal(t, [2]durable.Scheduled{want, want}, [2]durable.Scheduled{*got, *stored})
		m := f.occurrence(stored)
		m.Key, m.Audience = "a.2", s.Audience
		f.insert(t, m)
		require.Equal(t, content.Payload, f.stored(t, []*durable.Message{m})[m.ID].Payload)
	},
	"a change of a schedule is refused": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		due, later, sent, recurs := f.plan(ch, "a", now-1), f.plan(ch, "b", now+time.Hour.Milliseconds()), f.plan(ch, "c",
			now+time.Hour.Milliseconds()), f.plan(ch, "d", now-1)
		recurs.Recurrence = "R/x"
		f.schedule(t, due, later, sent, recurs)
		f.insert(t, f.occurrence(sent))
		change := func(s *durable.Scheduled, c durable.ScheduleChange) error {
			c.ID, c.Times = s.ID, &durable.Scheduled{DueMs: now + 2*time.Hour.Milliseconds()}
			_, err := f.ChangeScheduled(f.ctx, c)
			return err
		}
		require.ErrorIs(t, change(due, durable.ScheduleChange{}), durable.ErrDispatched)
		require.ErrorIs(t, change(sent, durable.ScheduleChange{}), durable.ErrDispatched)
		require.ErrorIs(t, change(f.plan(ch, "", 0), durable.ScheduleChange{}), durable.ErrNotFound)
		require.ErrorIs(t, change(later, durable.ScheduleChange{Content: &durable.Message{Priority: 1024}}),
			durable.ErrRejected)
		require.ErrorIs(t, change(later, durable.ScheduleChange{UnmodifiedSince: later.ID.Time().Add(-time.Second)}),
			durable.ErrPrecondition)
		other := *later
		other.DueMs++
		require.ErrorIs(t, change(later, durable.ScheduleChange{If: &other}), durable.ErrPrecondition)
		require.NoError(t, change(later, durable.ScheduleChange{If: later}))
		require.ErrorIs(t, change(later, durable.ScheduleChange{If: later}), durable.ErrPrecondition)
		got, err := f.ScheduledByID(f.ctx, later.ID)
		require.NoError(t, err)
		require.NoError(t, change(later, durable.ScheduleChange{UnmodifiedSince: got.ChangedAt().Truncate(time.Second)}))
		require.ErrorIs(t, change(later, durable.ScheduleChange{UnmodifiedSince: got.ChangedAt().Truncate(time.Second)}),
			durable.ErrPrecondition)
		require.NoError(t, change(recurs, durable.ScheduleChange{}), "the next message of a recurrence is another one")
		require.NoError(t, f.CancelScheduled(f.ctx, later.ID))
		require.ErrorIs(t, change(later, durable.ScheduleChange{}), durable.ErrNotFound)
	},
	"a change and the message of a schedule exclude each other": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		later := f.ids.Next().Millis() + time.Hour.Milliseconds()
		var plans []*durable.Scheduled
		var msgs []*durable.Message
		for i := range 40 {
			plans = append(plans, f.plan(ch, fmt.Sprint("m-", i), later))
			msgs = append(msgs, f.occurrence(plans[i]))
		}
		f.schedule(t, plans...)
		changed, sent := make([]error, len(plans)), make([]error, len(plans))
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := part; i < len(plans); i += 4 {
					_, changed[i] = f.ChangeScheduled(f.ctx, durable.ScheduleChange{ID: plans[i].ID,
						Content: &durable.Message{Payload: []byte("new")}})
				}
			})
		}
		wg.Go(func() {
			for i := len(plans) - 1; i >= 0; i -= 5 {
				copy(sent[i-4:i+1], f.insertFresh(t, msgs[i-4:i+1]))
			}
		})
		wg.Wait()
		for i, s := range plans {
			if sent[i] == nil {
				require.ErrorIs(t, changed[i], durable.ErrDispatched)
				continue
			}
			require.ErrorIs(t, sent[i], durable.ErrMoved)
			require.NoError(t, changed[i])
			got, err := f.ScheduledByID(f.ctx, s.ID)
			require.NoError(t, err)
			require.Equal(t, durable.ScheduleWaiting, got.Status)
			require.Equal(t, "new", string(got.Payload))
			got.Audience = s.Audience
			f.insert(t, f.occurrence(got))
		}
	},
	"an idempotency key of a schedule compares its time": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		later := f.ids.Next().Millis() + time.Hour.Milliseconds()
		plan := func(dueMs int64) *durable.Scheduled {
			s := f.plan(ch, "", dueMs)
			s.Message = *f.keyed(ch, "k", "one")
			return s
		}
		first := plan(later)
		f.schedule(t, first)
		requireDuplicate(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{plan(later)})[0], first.ID)
		require.ErrorIs(t, f.Schedule(f.ctx, f.node, []*durable.Scheduled{plan(later + 1)})[0], durable.ErrReused)
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.keyed(ch, "k", "one")})[0], durable.ErrReused)
		require.NoError(t, f.CancelScheduled(f.ctx, first.ID))
		f.schedule(t, plan(later+1))
	},
	"the insert of its message ends a schedule": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		now := f.ids.Next().Millis()
		var plans []*durable.Scheduled
		var msgs []*durable.Message
		for i := range 20 {
			key := ""
			if i%2 == 0 {
				key = fmt.Sprint("m-", i)
			}
			plans = append(plans, f.plan(ch, key, now))
			plans[i].Priority = i % 3
		}
		f.schedule(t, plans...)
		for _, s := range plans {
			msgs = append(msgs, f.occurrence(s))
		}
		plain := f.message(ch)
		for range 2 { // the second one is a repeat after a lost answer
			for i, err := range f.Insert(f.ctx, f.node, append([]*durable.Message{plain}, msgs...)) {
				require.NoError(t, err, "%d", i)
			}
		}
		require.Len(t, f.stored(t, msgs), 20)
		for i, s := range plans {
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.occurrence(s)})[0], durable.ErrMoved)
			got, err := f.ScheduledByID(f.ctx, s.ID)
			require.NoError(t, err)
			require.Equal(t, durable.ScheduleOver, got.Status)
			require.Equal(t, msgs[i].ID, got.MessageID)
			require.ErrorIs(t, f.CancelScheduled(f.ctx, s.ID), durable.ErrDispatched)
			if s.Key != "" {
				holder, err := f.MessageByKey(f.ctx, ch.No, s.Key)
				require.NoError(t, err)
				require.Equal(t, msgs[i].ID, holder)
			}
		}
		n, err := f.ForgetScheduled(f.ctx, now+1, 15)
		require.NoError(t, err)
		require.Equal(t, 15, n)
		n, err = f.ForgetScheduled(f.ctx, now+1, 15)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		holder, err := f.MessageByKey(f.ctx, ch.No, "m-0")
		require.NoError(t, err, "the message keeps its ID")
		require.Equal(t, msgs[0].ID, holder)
	},
	"a schedule that is due is not deleted, a recurrence is": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		due, recurs := f.plan(ch, "a", f.ids.Next().Millis()-1), f.plan(ch, "b", f.ids.Next().Millis()-1)
		recurs.Recurrence = "R/x"
		f.schedule(t, due, recurs)
		require.ErrorIs(t, f.CancelScheduled(f.ctx, due.ID), durable.ErrDispatched)
		require.NoError(t, f.CancelScheduled(f.ctx, recurs.ID))
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{f.occurrence(recurs)})[0], durable.ErrMoved)
	},
	"a recurrence moves on message by message": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		s := f.plan(ch, "a", f.ids.Next().Millis())
		s.Recurrence = "R/x"
		f.schedule(t, s)
		taken := f.message(ch)
		taken.Key = "a.2"
		f.insert(t, taken)
		for no := range 3 {
			m := f.occurrence(s)
			m.Key = fmt.Sprint("a.", no+1)
			m.Occurrence = &durable.Occurrence{Of: s.ID, No: no, NextNo: no + 1, NextMs: s.DueMs + int64(no) + 1}
			ahead := *m
			ahead.Occurrence = &durable.Occurrence{Of: s.ID, No: no + 1}
			require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{&ahead})[0], durable.ErrMoved)
			errs := f.Insert(f.ctx, f.node, []*durable.Message{m, f.message(ch)})
			require.NoError(t, errs[1])
			if no == 1 {
				require.ErrorIs(t, errs[0], durable.ErrConflict)
				m.Key = ""
				errs = f.Insert(f.ctx, f.node, []*durable.Message{m})
			}
			require.NoError(t, errs[0])
			got, err := f.ScheduledByKey(f.ctx, ch.No, "a")
			require.NoError(t, err)
			require.Equal(t, [2]int64{int64(no + 1), s.DueMs + int64(no) + 1}, [2]int64{int64(got.No), got.DueMs})
			require.Equal(t, m.ID, got.MessageID)
		}
	},
	"of two brokers one sends a schedule": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		var plans []*durable.Scheduled
		for i := range 100 {
			plans = append(plans, f.plan(ch, fmt.Sprint("m-", i), f.ids.Next().Millis()))
		}
		f.schedule(t, plans...)
		var mu sync.Mutex
		stored := map[ident.ID]int{}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				var msgs []*durable.Message
				for _, s := range plans {
					msgs = append(msgs, f.occurrence(s))
				}
				for i, err := range f.Insert(f.ctx, f.node, msgs) {
					if err == nil {
						mu.Lock()
						stored[plans[i].ID]++
						mu.Unlock()
					} else if !errors.Is(err, durable.ErrMoved) {
						t.Errorf("%d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, stored, 100)
		for id, n := range stored {
			require.Equal(t, 1, n, "%s", id)
		}
		counts, err := f.Count(f.ctx, ch.No, 1000)
		require.NoError(t, err)
		require.Equal(t, durable.Counts{Messages: 100, Over: 100}, counts)
	},
	"a broker with old knowledge stores no message of a schedule": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		s := f.plan(ch, "a", f.ids.Next().Millis())
		f.schedule(t, s)
		m := f.occurrence(s)
		m.Audience++
		require.ErrorIs(t, f.Insert(f.ctx, f.node, []*durable.Message{m})[0], durable.ErrStale)
		stale := f.node
		stale.Token[0]++
		require.ErrorIs(t, f.Schedule(f.ctx, stale, []*durable.Scheduled{f.plan(ch, "b", 1)})[0], durable.ErrStale)
		f.insert(t, f.occurrence(s))
	},
	"the schedules of a channel are removed": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		for i := range 5 {
			f.schedule(t, f.plan(ch, fmt.Sprint(i), 1), f.plan(other, fmt.Sprint(i), 1))
		}
		for _, want := range []int{3, 2, 0} {
			n, err := f.RemoveScheduled(f.ctx, ch.No, 3)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		m := f.message(ch)
		m.Key = "1"
		f.insert(t, m)
		counts, err := f.Count(f.ctx, other.No, 10)
		require.NoError(t, err)
		require.Equal(t, 5, counts.Waiting)
	},
}
