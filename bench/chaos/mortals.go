//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A Death is a client that ended in the middle of something.
type Death struct {
	Kind       string
	How        string // it left its connection
	Broker     int    // unspecified: several
	Start, End time.Time
}

// A death is a way in which a client dies inside the process of the mortals. happen runs a client
// until that death and returns how it left its connection, empty if the client did not come that
// far.
type death struct {
	kind   string
	happen func(m *mortal, ctx context.Context) (how string)
}

// deaths are all of them.
var deaths = []death{
	{"producer, in its request", (*mortal).producerInRequest},
	{"producer, before its answer", (*mortal).producerBeforeAnswer},
	{"producer, in its answer", (*mortal).producerInAnswer},
	{"batch producer, in its request", (*mortal).batchInRequest},
	{"batch producer, after some answers", (*mortal).batchAfterAnswers},
	{"batch producer, never reading", (*mortal).batchNeverReading},
	{"batch producer, stalled", (*mortal).batchStalled},
	{"pull worker, in a long poll", (*mortal).pullerInLongPoll},
	{"pull worker, before its jobs", (*mortal).pullerBeforeJobs},
	{"pull worker, in its jobs", (*mortal).pullerInJobs},
	{"pull worker, with jobs", (*mortal).pullerWithJobs},
	{"pull worker, in its report", (*mortal).pullerInReport},
	{"pull worker, before the answer to its report", (*mortal).pullerBeforeAnswer},
}

// deathKinds are the ways in which clients die in a campaign, including those of whole processes.
func deathKinds() (out []string) {
	for _, d := range deaths {
		out = append(out, d.kind)
	}
	for _, v := range victims {
		out = append(out, v.kind)
	}
	return out
}

const (
	// mortalsAtOnce bounds the clients that are alive: some stall for long.
	mortalsAtOnce = 48
	// lives is how often a client starts again, at the next broker, if it does not come as far as
	// its death: its broker may be down.
	lives = 8
)

// mortals are clients that die in the middle of something, one after the other in an
// order of its own for each round of every kind. The journal has a line for each:
//
//	K kind how broker began died
type mortals struct {
	*producer
	puller *puller // whose workers they are
	slots  chan struct{}
}

func newMortals(p *plan, log *journal, from int64) *mortals {
	return &mortals{producer: newProducer(p, log, from), puller: newPuller(p, log), slots: make(chan struct{},
		mortalsAtOnce)}
}

// run lets clients die until ctx ends.
func (m *mortals) run(ctx context.Context) {
	due := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var round []death
		for n := uint64(0); ; n++ {
			if _, ok := <-due; !ok {
				return
			}
			rng := rand.New(rand.NewPCG(m.plan.Seed, n))
			if len(round) == 0 {
				round = append(round, deaths...)
				rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			}
			d := round[0]
			round = round[1:]
			m.slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-m.slots }()
				m.live(ctx, d, rng)
			})
		}
	})
	pace(ctx, m.plan.Deaths, due)
	close(due)
	wg.Wait()
	m.Close()
	m.puller.http.CloseIdleConnections()
}

// live runs a client that dies in one way.
func (m *mortals) live(ctx context.Context, d death, rng *rand.Rand) {
	broker := rng.IntN(len(m.plan.Doors))
	for range lives {
		start := time.Now()
		c := &mortal{mortals: m, rng: rng, kind: d.kind, broker: broker}
		if how := d.happen(c, ctx); how != "" {
			m.log.Add("K", d.kind, how, broker, start, time.Now())
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause(ctx, time.Duration(50+rng.IntN(150))*time.Millisecond)
		broker = (broker + 1) % len(m.plan.Doors)
	}
}

// A mortal is a client of one broker that is going to die.
type mortal struct {
	*mortals
	rng    *rand.Rand
	kind   string
	broker int
}

func (m *mortal) dial() (*wire, error) { return dialWire(m.plan.Doors[m.broker]) }

// upTo draws a time.
func (m *mortal) upTo(most time.Duration) time.Duration { return between(m.rng, 0, most) }

// long draws how long a client keeps an idle connection: mostly seconds, sometimes longer than the
// broker's time-out.
func (m *mortal) long() time.Duration {
	if m.rng.IntN(8) == 0 {
		return 70 * time.Second
	}
	return between(m.rng, time.Second, 6*time.Second)
}
