//go:build !race

package simulation

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flawSeeds is how many runs a flaw has to be found in.
const flawSeeds = 300

// A simulation that cannot fail proves nothing: each protection that is switched off must be
// reported, as one of the invariants that it protects. make test runs it beside the seeds, without the
// race detector: the detector takes four times as long, and TestSeeds runs the same code under it.
func TestEachFlawIsFound(t *testing.T) {
	flaws := map[string]struct {
		flaw flaw
		as   string      // invariants, any of them
		with func(*plan) // what has to happen for it to show
	}{
		"the store forgets a commit":                        {commitIsForgotten, "I1 I3", nil},
		"the insert has no guard":                           {guardIsOff, "I1", nil},
		"the store ignores message IDs of producers":        {keysAreForgotten, "I9", nil},
		"the store forgets an outcome":                      {recordIsForgotten, "I1 I2", nil},
		"the store does not tell that a job is over":        {statesAreHidden, "I2", nil},
		"the store returns the payload of another message":  {payloadsAreMixed, "I4", nil},
		"the store's clock goes back with its server's":     {storeClockGoesBack, "I1", stepsBack},
		"brokers ignore that the store went back":           {historyIsIgnored, "I5 I1", goesBack},
		"a settled mark is stored too far ahead":            {marksRunAhead, "I1 I26", long},
		"Redis ends leases that live":                       {leaseIsForgotten, "I6", nil},
		"Redis takes jobs for known that it does not have":  {offerIsForgotten, "I5 I20", nil},
		"a wiped Redis keeps its epochs":                    {wipeIsHidden, "I5 I6 I20", wipes},
		"nobody notices that another Redis process answers": {runIsIgnored, "I2 I5", restores},
		"Redis hears of an outcome before the store":        {ackBeforeRecord, "I2 I5 I6", nil},
		"a wiped Redis is not given its leases back":        {leasesAreNotHeld, "I6", wipesUnderWay},
		"Redis does not see that its clock went back":       {clockIsTrusted, "I5", clockGoesBack},
		"a message with open jobs is removed":               {openIsPurged, "I1", retains},
		"the store names no message before another one":     {chainIsForgotten, "I14", func(p *plan) { p.orders = true }},
		"Redis grants leases beyond the rate":               {ratesAreIgnored, "I15", func(p *plan) { p.rates = true }},
		"a schedule waits on after its message": {movesAreForgotten, "I9", func(p *plan) {
			p.schedules = true
		}},
		"a scheduled message is due too early": {timesAreEarly, "I16", func(p *plan) { p.schedules = true }},
		"a schedule is sent as it was before a change": {changesAreIgnored, "I16", func(p *plan) {
			p.schedules = true
		}},
		"a response is not stored with its outcome": {responsesAreForgotten, "I17", func(p *plan) {
			p.responses = true
		}},
		"a delivered reply does not end its exchange": {repliesAreForgotten, "I5", func(p *plan) {
			p.responses = true
		}},
		"a replay is said to be further than it is": {progressRunsAhead, "I18", func(p *plan) { p.replays = true }},
		"the progress of a replay has no condition": {progressIsUnguarded, "I18", lateProgress},
		"a step of a bulk has no condition":         {stepsAreUnguarded, "I9 I19", lateSteps},
		"the checkpoint of a bulk is not stored": {checkpointIsForgotten, "I9 I19", func(p *plan) {
			p.bulks = true
		}},
		"a consumer gets the present before its past":         {pastIsForgotten, "I20", func(p *plan) { p.late = 4 }},
		"a flush of the journal does not reach the disk":      {flushIsForgotten, "I21", journals},
		"a replay of a journal stores again what it stored":   {receiptKeysAreForgotten, "I9", journals},
		"a journal is removed before its messages are stored": {journalIsRemoved, "I21", journals},
		"the rest of a damaged file is taken for a torn end": {damageIsSilent, "I21", func(p *plan) {
			journals(p)
			p.journal.flips = 1000
		}},
		"the store forgets what a redrive has opened": {redrivesAreForgotten, "I5 I28", func(p *plan) {
			p.consumer.refuse = 300
			for range 3 {
				p.events = append(p.events, trouble{at: p.active * 3 / 4, kind: redrive, span: 2 * time.Second})
			}
		}},
		"a bound has no shares":                               {sharesAreOff, "I23", greedy},
		"the room of a body that broke off is not free again": {roomIsForgotten, "I23", greedy},
		"a consumer that hangs keeps others":                  {hangsSpread, "I2 I24", hangs},
		"a request to a consumer that hangs does not count":   {hangsAreForgotten, "I6 I7 I24", hangs},
		"the store forgets a purge":                           {purgeIsForgotten, "I25", func(p *plan) { p.purges = true }},
		"brokers hear of no pause":                            {statesAreStale, "I13", func(p *plan) { p.holds = true }},
	}
	for name, c := range flaws {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= flawSeeds; seed++ {
				p := newPlan(seed)
				if c.with != nil {
					c.with(&p)
				}
				if out := simulate(t, seed, p, c.flaw); out.wrong != "" {
					invariant, _, _ := strings.Cut(out.wrong, ":")
					require.Contains(t, strings.Fields(c.as), invariant, "seed %d: %s\n%s", seed, out.wrong, out.history)
					t.Logf("seed %d: %s", seed, out.wrong)
					return
				}
			}
			t.Fatalf("nobody noticed in %d seeds", flawSeeds)
		})
	}
}

// long makes a run long enough for settled marks to move.
func long(p *plan) { p.active = max(p.active, 12*time.Second) }

// lateSteps makes bulks whose steps reach the store after their owner has given them up, and has taken them
// again.
func lateSteps(p *plan) {
	long(p)
	p.calm, p.bulks = false, true
	p.store, p.lateness = seamRates{late: 250}, 8*time.Second
}

// lateProgress makes replays whose progress reaches the store after another broker has gone on.
func lateProgress(p *plan) {
	long(p)
	p.calm, p.replays = false, true
	p.store, p.lateness = seamRates{late: 250}, 4*time.Second
}

// wipes empties Redis three times.
func wipes(p *plan) { p.repeat(3, wipe) }
