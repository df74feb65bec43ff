package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The same of schedules: they are stored, refused, due and sent as in SQLite.
func TestScheduleModelIsWhatTheStoreDoes(t *testing.T) {
	p := newStorePair(t, 1)
	ctx := t.Context()
	var all []durable.Scheduled
	far := time.Now().Add(24 * time.Hour).UnixMilli()
	for n := range 600 {
		lease := p.lease
		if p.r.hit(100) {
			lease.Token[0]++
		}
		m := durable.Message{ID: ident.AtMillis(time.Now().UnixMilli()), ChannelNo: p.channel, ProducerNo: uint32(1 + n%2),
			Audience: len(p.consumers), ContentType: "t", Payload: []byte("x")}
		m.ID[8], m.ID[9] = byte(n>>8), byte(n)
		if p.r.hit(500) {
			m.Key = fmt.Sprintf("k%d", p.r.below(20))
		}
		switch {
		case p.r.hit(500): // a schedule, some of them again
			s := durable.Scheduled{Message: m, DueMs: int64(1000 + p.r.below(5))}
			if p.r.hit(300) {
				s.DueMs = far
			}
			if p.r.hit(300) {
				s.DelayMs, s.FromNow = int64(1+p.r.below(2)), true
			}
			if len(all) > 0 && p.r.hit(100) {
				s = all[p.r.below(len(all))]
			}
			got := p.real.Schedule(ctx, lease, []*durable.Scheduled{&s})[0]
			want := p.model.schedule(lease, []durable.Scheduled{s})[0]
			require.Equal(t, kindOf(want), kindOf(got), "%v and %v", want, got)
			if want == nil {
				all = append(all, s)
			}
		case len(all) > 0 && p.r.hit(300): // a change, of what waits, is due, is sent or is not there
			c := durable.ScheduleChange{ID: m.ID, Times: &durable.Scheduled{DueMs: int64(1000 + p.r.below(5))}}
			if p.r.hit(900) {
				c.ID = all[p.r.below(len(all))].ID
			}
			if p.r.hit(500) { // it may be changed once more
				c.Times.DueMs = far
			}
			if p.r.hit(500) {
				c.Times, c.Content = nil, &durable.Message{ContentType: "u", Payload: []byte("changed")}
			}
			got, err := p.real.ChangeScheduled(ctx, c)
			want, wanted := p.model.changeSchedule(c)
			require.Equal(t, kindOf(wanted), kindOf(err), "%v and %v", wanted, err)
			if err == nil {
				want.ChangedMs, want.Audience, want.FromNow = got.ChangedMs, 0, false
				p.model.schedules[c.ID].ChangedMs = got.ChangedMs
				require.Equal(t, *want, *got)
			}
		case len(all) > 0 && p.r.hit(700): // its message, or one that it does not wait for
			s := all[p.r.below(len(all))]
			m.Key, m.Occurrence = s.Key, &durable.Occurrence{Of: s.ID, No: p.r.below(10) / 9, NextNo: 1, Reserved: true}
			if p.r.hit(800) { // of the present state
				m.Occurrence.ChangedMs = p.model.schedules[s.ID].ChangedMs
			}
			for range 2 { // the second time after a lost answer
				got := p.real.Insert(ctx, lease, []*durable.Message{&m})[0]
				want := p.model.insertOccurrence(lease, m)
				require.Equal(t, kindOf(want), kindOf(got), "%v and %v", want, got)
			}
		default: // a message of now
			got := p.real.Insert(ctx, lease, []*durable.Message{&m})[0]
			want := p.model.insert(lease, []durable.Message{m})[0]
			require.Equal(t, kindOf(want), kindOf(got), "%v and %v", want, got)
		}
		nowMs, after := int64(999+p.r.below(7)), durable.Due{AtMs: int64(1000 + p.r.below(3))}
		due, err := p.real.DueSchedules(ctx, nowMs, 10)
		require.NoError(t, err)
		require.Equal(t, p.model.due(nowMs, 10), due)
		lines, err := p.real.DueLines(ctx, nowMs)
		require.NoError(t, err)
		require.Equal(t, p.model.dueLines(nowMs), lines)
		turns := []durable.DueTurn{{DueLine: durable.DueLine{ProducerNo: uint32(1 + p.r.below(2)), ChannelNo: p.channel},
			After: after, Limit: 5}}
		due, err = p.real.DueOfLines(ctx, nowMs, turns)
		require.NoError(t, err)
		require.Equal(t, p.model.dueOfLines(nowMs, turns), due)
		next, err := p.real.NextDue(ctx, nowMs)
		require.NoError(t, err)
		require.Equal(t, p.model.nextDue(nowMs), next)
	}
	require.NoError(t, p.real.Close())
}
