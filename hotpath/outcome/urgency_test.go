package outcome

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A diary has the time of each transaction.
type diary struct{ at []time.Time }

func (d *diary) Record(context.Context, []durable.Outcome) error {
	d.at = append(d.at, time.Now())
	return nil
}

// An outcome lingers after the last transaction, for as long as the most urgent one that waits allows.
func TestAnOutcomeLingersByItsUrgency(t *testing.T) {
	type added struct {
		after   time.Duration // after the last transaction
		urgency Urgency
	}
	ms := time.Millisecond
	for name, c := range map[string]struct {
		added []added
		want  time.Duration
	}{
		"nothing waits for it":               {[]added{{0, Deferrable}}, 10 * ms},
		"a job waits for it":                 {[]added{{0, Awaited}}, 2 * ms},
		"a request waits for it":             {[]added{{0, Urgent}}, 0},
		"a job waits for a later one":        {[]added{{0, Deferrable}, {ms, Awaited}}, 2 * ms},
		"a job waits for one that is late":   {[]added{{0, Deferrable}, {5 * ms, Awaited}}, 5 * ms},
		"a request waits for a later one":    {[]added{{0, Awaited}, {ms, Urgent}}, ms},
		"a job waits, then nothing does":     {[]added{{0, Awaited}, {ms, Deferrable}}, 2 * ms},
		"nothing has been stored for a time": {[]added{{time.Second, Deferrable}}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				o, stop := runOutcomes(t, &d, slowAcks(nil))
				add := func(h Urgency) {
					o.Add(Entry{Outcome: durable.Outcome{Kind: durable.OutcomeDelivered}, Urgency: h})
					synctest.Wait()
				}
				add(Urgent)
				require.Len(t, d.at, 1, "there was no transaction to linger after")
				for _, a := range c.added {
					time.Sleep(time.Until(d.at[0].Add(a.after)))
					add(a.urgency)
				}
				time.Sleep(time.Second)
				stop()
				require.Len(t, d.at, 2)
				require.Equal(t, c.want, d.at[1].Sub(d.at[0]))
			})
		})
	}
}
