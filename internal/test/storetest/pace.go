package storetest

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var paceTests = map[string]func(*testing.T, *fixture){
	"brokers count the attempts of a consumer together, and one changes its pace": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		no := ks[0].No
		paces, err := f.Paces(f.ctx)
		require.NoError(t, err)
		require.Empty(t, paces)
		var changes atomic.Int32
		race(8, func(i int) {
			before, after, err := f.CountPace(f.ctx, no, ks[0].CallbackURL, 2, 1, 1000, func(p durable.Pace) durable.Pace {
				if p.Good >= 8 && p.Mode == durable.PaceNormal {
					return durable.Pace{ConsumerNo: p.ConsumerNo, Mode: durable.PaceSlow, PerSecond: 3, SinceMs: 2000}
				}
				return p
			})
			require.NoError(t, err)
			if before.Mode != after.Mode {
				changes.Add(1)
				require.Equal(t, 8, before.Good)
				require.Equal(t, 4, before.Strained)
				require.EqualValues(t, 1000, before.SinceMs)
			}
		})
		require.EqualValues(t, 1, changes.Load())
		for former, no := range map[string]uint32{"http://former/": no, ks[0].CallbackURL: 888} {
			before, after, err := f.CountPace(f.ctx, no, former, 0, 9, 5, func(p durable.Pace) durable.Pace {
				p.PerSecond = 1
				return p
			})
			require.NoError(t, err)
			require.Equal(t, before, after, "a former URL, or nobody, has no pace")
		}
		paces, err = f.Paces(f.ctx)
		require.NoError(t, err)
		due, _, err := f.DueAlerts(f.ctx, durable.AlertChannel, 10_000, 10)
		require.NoError(t, err)
		require.Len(t, due, 1, "one alert of the transition")
		require.Equal(t, durable.ConsumerSlow, due[0].Event)
		require.Contains(t, due[0].Reason, "4 of 12 attempts")
		require.ElementsMatch(t, []durable.Pace{{ConsumerNo: no, Mode: durable.PaceSlow, PerSecond: 3, Good: 8, Strained: 4,
			SinceMs: 2000}}, paces)
	},
}
