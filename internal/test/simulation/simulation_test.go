package simulation

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag  = flag.Int64("simulation.seed", -1, "run this seed alone")
	fromFlag  = flag.Uint64("simulation.from", 1, "the first seed")
	seedsFlag = flag.Int("simulation.seeds", defaultSeeds, "how many seeds to run")
	timesFlag = flag.Int("simulation.times", 1, "how often to run each seed")
)

// A runResult is the result of a run.
type runResult struct {
	wrong   string // "" when every invariant holds
	history string
	digest  uint64
	handed  int
	repeats int
	lives   int
	removed int // messages
	virtual time.Duration
}

// simulate runs a seed in a new bubble.
func simulate(t *testing.T, seed uint64, p plan, f flaw) (out runResult) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		st, err := openStore(storesDir, template, func() time.Time { return time.Now().Add(p.storeSkew) })
		require.NoError(t, err)
		defer func() { require.NoError(t, st.close()) }()
		w := newWorld(seed, p, f, st)
		if p.journal.on {
			dir, err := os.MkdirTemp(storesDir, "journals")
			require.NoError(t, err)
			defer os.RemoveAll(dir)
			w.folders = dir
		}
		w.run()
		c := w.checker
		out = runResult{wrong: c.wrong, digest: w.history.digest, handed: c.handedOut, repeats: c.repeated, lives: w.lives,
			removed: len(w.store.purged), virtual: w.now()}
		if c.wrong != "" {
			out.history = fmt.Sprintf("plan: %+v\n\nthe job:\n%s\nthe end of the history:\n%s", w.plan,
				w.history.last(tail, c.about), w.history.last(tail, none))
		}
	})
	return out
}

// check reports a seed that breaks an invariant.
func check(t *testing.T, seed uint64) runResult {
	t.Helper()
	out := simulate(t, seed, newPlan(seed), noFlaw)
	if out.wrong != "" {
		t.Errorf("seed %d: %s\n\n%s\nrun it again:\n  go test ./internal/test/simulation -run TestSeeds "+
			"-simulation.seed=%d -simulation.times=20\n", seed, out.wrong, out.history, seed)
	}
	return out
}

// Seeds that found a defect in the product. Without the fix each of them fails, unless a change of
// the simulation has changed the meaning of seeds. They run first.
var regressions = map[string][]uint64{
	"a repeated offer after a loss put a job back that was under way": {927},
	"a broker that slept handed out leases that were over":            {197, 759},
	"a window that was full for a moment kept every later job outside, for ever": {608, 759,
		869, 880, 884},
	"jobs in the window waited for jobs outside it that were over, and nobody told the refill":              {424745},
	"the claim that met a restored Redis first trusted what it gave, and delivered what had been delivered": {1268},
	"an answer 410 gave its request back to the rate, and one more was sent":                                {182},
	"a broker whose first lease was slow took the store's clock to be ahead, and walked too far": {197, 227,
		1314, 1824, 2119},
	"a message with an ordering key overtook those that the journal held until their channel was resumed": {14195},
	"a file of the journal whose entries were over stayed after a write that failed":                      {7913},
	"the receipt of a held message that the disk damaged said that it waits":                              {14177},
}

func TestSeedsThatFailedOnceHold(t *testing.T) {
	for what, seeds := range regressions {
		t.Run(what, func(t *testing.T) {
			for _, seed := range seeds {
				for range tries {
					check(t, seed)
				}
			}
		})
	}
}

// fewSeeds is how many seeds a test runs whose plans have one kind of trouble in each.
const fewSeeds = max(defaultSeeds/20, 10)

// enough is the number of failing seeds after which TestSeeds stops.
const enough = 5

func TestSeeds(t *testing.T) {
	from, n := *fromFlag, *seedsFlag
	if *seedFlag >= 0 {
		from, n = uint64(*seedFlag), 1
	}
	began := time.Now()
	var sum runResult
	same := 0
	for seed, bad := from, 0; seed < from+uint64(n) && bad < enough; seed++ {
		digests := map[uint64]bool{}
		for range *timesFlag {
			out := check(t, seed)
			digests[out.digest] = true
			if out.wrong != "" {
				bad++
			}
			sum.handed += out.handed
			sum.repeats += out.repeats
			sum.lives += out.lives
			sum.virtual += out.virtual
		}
		if len(digests) == 1 {
			same++
		}
	}
	if *timesFlag > 1 {
		t.Logf("%d of %d seeds had the same history each of %d times", same, n, *timesFlag)
	}
	t.Logf("%d seeds in %s: %s of virtual time, %d brokers lived, %d jobs given out, %d of them again after a fault",
		n, time.Since(began).Round(time.Millisecond), sum.virtual.Round(time.Second), sum.lives, sum.handed, sum.repeats)
}

// A restored snapshot is the most dangerous fault: Redis has jobs again that are over, under an
// epoch that every broker trusts.
func TestRedisThatGoesBackInTimeRepeatsNothingThatIsOver(t *testing.T) {
	for seed := uint64(1); seed <= defaultSeeds/5 && !t.Failed(); seed++ {
		p := newPlan(seed)
		p.repeat(12, snapshot, restore)
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}

// The clock of Redis goes back by an hour. Delayed jobs and leases must not be late by an hour, and
// only jobs in flight may be repeated.
func TestAClockOfRedisThatGoesBackHoldsUpNothing(t *testing.T) {
	for seed := uint64(1); seed <= fewSeeds && !t.Failed(); seed++ {
		p := newPlan(seed)
		clockGoesBack(&p)
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}

// Retention removes messages that are over while messages flow and all other faults happen. No
// message with an open job is removed. Jobs of removed messages that a restored Redis still has
// reach no consumer.
func TestRetentionRemovesNothingThatIsOpenAndRepeatsNothingThatIsGone(t *testing.T) {
	for seed := uint64(1); seed <= fewSeeds && !t.Failed(); seed++ {
		p := newPlan(seed)
		retains(&p)
		if seed%2 == 0 {
			p.deadRetention = keptFor
		}
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		} else if out.removed == 0 {
			t.Errorf("seed %d: nothing was removed", seed)
		}
	}
}

// If only Redis loses its memory, a wipe repeats no delivery: each broker restores the leases of
// its deliveries in flight before another broker can claim these jobs.
func TestRedisThatIsWipedUnderWayRepeatsNothing(t *testing.T) {
	for seed := uint64(1); seed <= fewSeeds && !t.Failed(); seed++ {
		p := newPlan(seed)
		wipesUnderWay(&p)
		out := simulate(t, seed, p, noFlaw)
		if out.wrong != "" || out.repeats > 0 {
			t.Errorf("seed %d: %d repeats; %s\n\n%s", seed, out.repeats, out.wrong, out.history)
		}
	}
}

// A pull worker that works slowly through a list claims jobs that have died since, even after all
// jobs seemed to be over. Such a job must come to an end again.
func TestAWorkerThatTakesUpADeadJobLateIsWaitedFor(t *testing.T) {
	for _, seed := range []uint64{290, 980, 2755, 2761} {
		for range tries {
			p := newPlan(seed)
			p.ponder = 3 * time.Second
			if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
				t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
			}
		}
	}
}

// Messages of paused channels are held in journals and written again, and each life leaves a byte that
// is another one: whoever asks for a receipt is told.
func TestReceiptsOfDamagedJournalsOfPausedChannelsSayWhatIsLost(t *testing.T) {
	for seed := uint64(120); seed <= 150 && !t.Failed(); seed++ { // 140 has found that it said nothing
		p := newPlan(seed)
		damages(&p)
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}

// Consumers that never answer, from their first request on or after a time, where nothing else fails:
// no other consumer waits for them, and each of their requests counts.
func TestConsumersThatHangDelayNoOtherOneAndUseUpTheirAttempts(t *testing.T) {
	for seed := uint64(1); seed <= fewSeeds && !t.Failed(); seed++ {
		p := newPlan(seed)
		hangs(&p)
		if p.hanging.ever = seed%3 > 0; seed%2 == 0 {
			p.hanging.after = p.active / 3
		}
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}

// A store that goes back has jobs open again, below every watermark that brokers remember, and Redis
// has acknowledged them.
func TestAStoreThatGoesBackDeliversWhatIsOpenAgain(t *testing.T) {
	for seed := uint64(1); seed <= defaultSeeds/5 && !t.Failed(); seed++ {
		p := newPlan(seed)
		goesBack(&p)
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}

// The clock of the store's server goes back by six seconds, three times.
func TestAClockOfTheStoreThatGoesBackHidesNothing(t *testing.T) {
	for seed := uint64(1); seed <= defaultSeeds/5 && !t.Failed(); seed++ {
		p := newPlan(seed)
		stepsBack(&p)
		if out := simulate(t, seed, p, noFlaw); out.wrong != "" {
			t.Errorf("seed %d: %s\n\n%s", seed, out.wrong, out.history)
		}
	}
}
