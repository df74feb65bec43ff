package storetest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// to is the change of a consumer from one state to another one.
func (f *fixture) to(t *testing.T, k durable.Consumer, from, to durable.ConsumerState, reason string) durable.Consumer {
	t.Helper()
	got, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
		From: []durable.ConsumerState{from}, To: to, Reason: reason})
	require.NoError(t, err)
	require.True(t, changed)
	return got
}

// due are the alerts that a sink may be given at a time.
func (f *fixture) due(t *testing.T, sink durable.Sink, atMs int64) []durable.Alert {
	t.Helper()
	due, _, err := f.DueAlerts(f.ctx, sink, atMs, 100)
	require.NoError(t, err)
	return due
}

const forever = 1 << 60

var alertTests = map[string]func(*testing.T, *fixture){
	"each transition leaves one alert": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 2)
		k := ks[0]
		f.to(t, ks[1], durable.StateActive, durable.StatePaused, "by a request")
		f.to(t, ks[1], durable.StatePaused, durable.StateActive, "")
		gone := f.to(t, k, durable.StateActive, durable.StateGone, "410 "+strings.Repeat("\u20ac", 300))
		revived := f.to(t, k, durable.StateGone, durable.StateActive, "")
		dead := f.to(t, k, durable.StateActive, durable.StateDead, "failures")
		f.to(t, k, durable.StateDead, durable.StateProbing, "revived")
		again := f.to(t, k, durable.StateProbing, durable.StateDead, "the probe failed")
		f.to(t, k, durable.StateDead, durable.StateProbing, "revived")
		alive := f.to(t, k, durable.StateProbing, durable.StateActive, "")
		_, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
			From: []durable.ConsumerState{durable.StateGone}, To: durable.StateActive})
		require.NoError(t, err)
		require.False(t, changed)
		alert := func(e durable.Event, k durable.Consumer, reason string) durable.Alert {
			return durable.Alert{Event: e, ConsumerNo: k.No, ChannelID: "c", ConsumerID: "k0", AtMs: k.StateMs, Reason: reason}
		}
		require.Equal(t, []durable.Alert{
			alert(durable.ConsumerGone, gone, gone.StateReason),
			alert(durable.ConsumerRevived, revived, "revived by a request"),
			alert(durable.ConsumerDead, dead, "failures"),
			alert(durable.ConsumerDead, again, "the probe failed"),
			alert(durable.ConsumerRevived, alive, "the probe after the revival was answered"),
		}, f.due(t, durable.AlertChannel, 0))
	},
	"the last failure leaves an alert with the death": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		m := f.message(ch)
		f.insert(t, m)
		require.False(t, f.failed(t, ks[0], m, 1, m.ID.Millis(), 1))
		require.Empty(t, f.due(t, durable.AlertChannel, forever))
		require.True(t, f.failed(t, ks[0], m, 2, m.ID.Millis()+1, 1))
		require.False(t, f.failed(t, ks[0], m, 3, m.ID.Millis()+2, 1))
		due := f.due(t, durable.AlertChannel, forever)
		require.Len(t, due, 1)
		k := f.consumerState(t, ks[0].No)
		require.Equal(t, durable.Alert{Event: durable.ConsumerDead, ConsumerNo: k.No, ChannelID: "c", ConsumerID: "k0",
			AtMs: k.StateMs, Reason: k.StateReason}, due[0])
	},
	"one of several brokers has an alert, until it ends or its time is over": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		slow := durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: ks[0].No, AtMs: 77, Reason: "why"}
		require.NoError(t, f.RaiseAlert(f.ctx, slow))
		require.NoError(t, f.RaiseAlert(f.ctx, slow), "it is on its way")
		require.ErrorIs(t, f.RaiseAlert(f.ctx, durable.Alert{Event: durable.ConsumerSlow, ConsumerNo: 99, AtMs: 1}),
			durable.ErrNotFound)
		due := f.due(t, durable.AlertChannel, 0)
		require.Len(t, due, 1)
		var claims atomic.Int32
		race(5, func(int) {
			claimed, err := f.ClaimAlert(f.ctx, due[0], 5000)
			require.NoError(t, err)
			if claimed {
				claims.Add(1)
			}
		})
		require.EqualValues(t, 1, claims.Load())
		none, next, err := f.DueAlerts(f.ctx, durable.AlertChannel, 4999, 100)
		require.NoError(t, err)
		require.Empty(t, none)
		require.EqualValues(t, 5000, next)
		again := f.due(t, durable.AlertChannel, 5000)
		require.Equal(t, 1, again[0].Tries)

		require.NoError(t, f.ForgetAlerts(f.ctx, forever))
		require.Len(t, f.due(t, durable.AlertChannel, 5000), 1, "it is for the channel")
		for range 2 {
			require.NoError(t, f.FinishAlert(f.ctx, again[0]))
			require.Empty(t, f.due(t, durable.AlertChannel, forever))
		}
	},
	"the growth of dead letters is counted": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 3)
		msgs := f.messages(ch, 4)
		f.insert(t, msgs...)
		var dead []durable.Outcome
		for i, m := range msgs {
			dead = append(dead, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: ks[2].No, ID: m.ID, Attempts: 1,
				AtMs: int64(100 + i), Error: "no"})
		}
		dead = append(dead, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: ks[0].No, ID: msgs[0].ID, Attempts: 1,
			AtMs: 100, Error: "no"})
		require.NoError(t, f.Record(f.ctx, dead))
		var with []uint32
		for no := uint32(0); ; {
			next, err := f.NextDeadConsumer(f.ctx, no)
			require.NoError(t, err)
			if no = next; no == 0 {
				break
			}
			with = append(with, no)
		}
		require.Equal(t, []uint32{ks[0].No, ks[2].No}, with)
		for since, want := range map[int64]int{0: 3, 101: 2, 103: 0} {
			n, err := f.DeadSince(f.ctx, ks[2].No, since, 3)
			require.NoError(t, err)
			require.Equal(t, want, n, since)
		}
		newest, err := f.NewestDead(f.ctx, ks[2].No)
		require.NoError(t, err)
		all, err := f.DeadJobs(f.ctx, ks[2].No, ident.ID{}, 100)
		require.NoError(t, err)
		require.Equal(t, all[len(all)-1], newest)
		_, err = f.NewestDead(f.ctx, ks[1].No)
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"an alarm opens and closes once": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 2)
		for i, event := range []durable.Event{durable.DLQGrowing, durable.ConsumerLate, durable.ConsumerUnpolled,
			durable.ChannelSilent, durable.ArchiveFailing} {
			no, consumer := ks[1].No, "k1"
			if event >= durable.ChannelSilent {
				no, consumer = ch.No, ""
			}
			at := int64(1000 * (i + 1))
			once := func(change func(context.Context, durable.Alert) (bool, error), at int64, reason string) {
				t.Helper()
				var changes atomic.Int32
				race(5, func(int) {
					changed, err := change(f.ctx, durable.Alert{Event: event, ConsumerNo: no, AtMs: at, Reason: reason})
					require.NoError(t, err)
					if changed {
						changes.Add(1)
					}
				})
				require.EqualValues(t, 1, changes.Load(), event)
			}
			alert := func(e durable.Event, at int64, reason string) durable.Alert {
				return durable.Alert{Event: e, ConsumerNo: no, ChannelID: "c", ConsumerID: consumer, AtMs: at, Reason: reason}
			}
			closed, err := f.CloseAlarm(f.ctx, durable.Alert{Event: event, ConsumerNo: no, AtMs: at})
			require.NoError(t, err)
			require.False(t, closed, "it is not open")
			once(f.OpenAlarm, at, "many")
			open, err := f.Alarms(f.ctx)
			require.NoError(t, err)
			require.Equal(t, []durable.Alarm{{Event: event, No: no, SinceMs: at}}, open)
			once(f.CloseAlarm, at+1, "few")
			once(f.OpenAlarm, at+2, "again")
			once(f.CloseAlarm, at+3, "no more")
			open, err = f.Alarms(f.ctx)
			require.NoError(t, err)
			require.Empty(t, open)
			require.Equal(t, []durable.Alert{alert(event, at, "many"), alert(event.Over(), at+1, "few"),
				alert(event, at+2, "again"), alert(event.Over(), at+3, "no more")}, f.due(t, durable.AlertChannel, forever)[4*i:])
			require.Equal(t, event.String()+".over", event.Over().String())
		}
	},
	"an alarm about what was deleted closes, and none about what never was opens": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		for _, event := range []durable.Event{durable.ConsumerLate, durable.ChannelSilent} {
			_, err := f.OpenAlarm(f.ctx, durable.Alert{Event: event, ConsumerNo: 99, AtMs: 1})
			require.ErrorIs(t, err, durable.ErrNotFound)
		}
		open, err := f.Alarms(f.ctx)
		require.NoError(t, err)
		require.Empty(t, open)
		opened, err := f.OpenAlarm(f.ctx, durable.Alert{Event: durable.ConsumerLate, ConsumerNo: ks[0].No, AtMs: 1})
		require.NoError(t, err)
		require.True(t, opened)
		_, err = f.DeleteConsumer(f.ctx, "c", durable.Put{ID: "k0"})
		require.NoError(t, err)
		closed, err := f.CloseAlarm(f.ctx, durable.Alert{Event: durable.ConsumerLate, ConsumerNo: ks[0].No, AtMs: 2})
		require.NoError(t, err)
		require.True(t, closed)
		due := f.due(t, durable.AlertChannel, forever)
		require.Len(t, due, 2)
		require.Equal(t, "k0", due[1].ConsumerID)
	},
	"the rhythm of a channel only moves forward, and a pause begins it anew": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		rhythm := func() int64 {
			t.Helper()
			all, err := f.Rhythms(f.ctx)
			require.NoError(t, err)
			if len(all) == 0 {
				return 0
			}
			require.Len(t, all, 1)
			require.Equal(t, ch.No, all[0].ChannelNo)
			return all[0].SinceMs
		}
		pause := func(paused bool) {
			t.Helper()
			_, changed, err := f.SetChannelPaused(f.ctx, "c", paused)
			require.NoError(t, err)
			require.True(t, changed)
		}
		pause(true)
		pause(false)
		require.Zero(t, rhythm(), "none was kept")
		for _, step := range [][2]int64{{500, 500}, {400, 500}, {600, 600}} {
			require.NoError(t, f.KeepRhythm(f.ctx, durable.Rhythm{ChannelNo: ch.No, SinceMs: step[0]}))
			require.Equal(t, step[1], rhythm())
		}
		pause(true)
		paused := rhythm()
		require.Greater(t, paused, int64(600))
		pause(false)
		require.GreaterOrEqual(t, rhythm(), paused)
		require.NoError(t, f.ForgetRhythm(f.ctx, ch.No))
		require.Zero(t, rhythm())
	},
	"the newest message of a channel is read alone": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		other, _ := f.channel(t, "d", 1)
		_, err := f.NewestMessage(f.ctx, ch.No)
		require.ErrorIs(t, err, durable.ErrNotFound)
		msgs := []*durable.Message{f.message(ch), f.message(ch), f.message(other)}
		f.insert(t, msgs...)
		newest, err := f.NewestMessage(f.ctx, ch.No)
		require.NoError(t, err)
		require.Equal(t, msgs[1].ID, newest)
	},
	"one of several brokers swaps a setting": func(t *testing.T, f *fixture) {
		for old := range int64(3) {
			var swaps atomic.Int32
			race(4, func(int) {
				swapped, err := f.SwapSetting(f.ctx, "pace", old, old+1)
				require.NoError(t, err)
				if swapped {
					swaps.Add(1)
				}
			})
			require.EqualValues(t, 1, swaps.Load())
		}
		got, err := f.Setting(f.ctx, "pace")
		require.NoError(t, err)
		require.EqualValues(t, 3, got)
	},
}
