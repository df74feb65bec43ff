package reaper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A stopped clock is a cluster of one broker at a time, Unix ms.
type stoppedClock struct{ ms int64 }

func (*stoppedClock) Owns(uint32) bool     { return true }
func (c *stoppedClock) NowMs() int64       { return c.ms }
func (c *stoppedClock) PastMs() int64      { return c.ms }
func (c *stoppedClock) FloorMs() int64     { return c.ms }
func (*stoppedClock) Clock() durable.Clock { return durable.Clock{} }

// Jobs that were spilled a moment ago are too new for the scan. What is less urgent waits for
// them: until the scan has passed the beginning of the wait, and once more if other jobs were
// spilled meanwhile, but not for ever, because a busy channel always has newer jobs.
func TestLessUrgentJobsWaitForSpilledOnesThatAreTooNew(t *testing.T) {
	const horizon = 100
	spilled := func(ready, priority int, spills int64) redisq.Stats {
		return redisq.Stats{Ready: ready, SpilledPriority: priority, Spills: spills}
	}
	type step struct {
		at    int64
		stats redisq.Stats
		waits bool
	}
	newest := int64(10_000) // of the channel
	for name, steps := range map[string][]step{
		"nothing is outside": {{at: 1000, stats: spilled(5, -1, 1)}},
		"an empty window": {{at: 1000, stats: spilled(0, 4, 1), waits: true},
			{at: 1101, stats: spilled(0, 4, 1)}},
		"one wait, nothing spilled meanwhile": {{at: 1000, stats: spilled(5, 4, 1), waits: true},
			{at: 1050, stats: spilled(5, 4, 1), waits: true}, {at: 1101, stats: spilled(5, 4, 1)}},
		"one wait more, and no third": {
			{at: 1000, stats: spilled(5, 4, 1), waits: true},
			{at: 1101, stats: spilled(5, 4, 2), waits: true}, {at: 1150, stats: spilled(5, 4, 3), waits: true},
			{at: 1202, stats: spilled(5, 4, 9)},
			{at: 1203, stats: spilled(5, 4, 10), waits: true}, // the next scan begins anew
		},
		"a more urgent one starts the waits again": {
			{at: 1000, stats: spilled(5, 4, 1), waits: true}, {at: 1101, stats: spilled(5, 4, 2), waits: true},
			{at: 1150, stats: spilled(5, 7, 3), waits: true}, {at: 1240, stats: spilled(5, 7, 3), waits: true},
			{at: 1251, stats: spilled(5, 7, 4), waits: true}, {at: 1352, stats: spilled(5, 7, 5)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &stoppedClock{}
			r := &Reaper{Options: Options{Cluster: clock}, Worklist: NewWorklist()}
			s := &scan{k: &durable.Consumer{No: 1}}
			for i, c := range steps {
				clock.ms = c.at
				require.Equal(t, c.waits, r.withhold(s, c.stats, ident.AtMillis(c.at-horizon), ident.AtMillis(newest)),
					"step %d", i)
			}
			require.False(t, r.withhold(s, spilled(5, 4, 99), ident.AtMillis(newest), ident.AtMillis(newest)),
				"the scan has seen every message")
		})
	}
}
