package preflight

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// Options are what a broker would start with.
type Options struct {
	Version     string            // of this program
	Faults      []string          // what is wrong with the settings, a sentence each; the stores are not asked then
	MySQLDSN    string            // empty: the embedded store
	Others      map[string]string // DSNs of other stores by name
	RedisURL    string            // empty: the embedded Redis
	RedisMaster string
	DataDir     string
	MaxBody     int                             // bytes; what the MySQL server must take
	Journal     int64                           // bytes that the journal may take
	ArchiveDir  string                          // folder of the archive; empty: none
	Bucket      string                          // name of the archive in a store
	Probe       func(ctx context.Context) error // writes, reads and removes an object there; nil: there is no store
	Starting    bool                            // the exit code counts what stops a start alone
	// Timeout bounds the questions to one part. 0: five seconds.
	Timeout time.Duration
}

// clockStep is the difference of two clocks from which their times mislead people. Nothing is lost by it.
const clockStep = time.Second

// Run looks at everything. The report never has a secret of the settings.
func Run(ctx context.Context, o Options) Report {
	var r Report
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	r.add("program", OK, "version %s, which makes tables of version %d", o.Version, durable.KnownSchema())
	if len(o.Faults) > 0 {
		for _, fault := range o.Faults {
			r.stops("settings", Mend, "%s", fault)
		}
		r.settle(o.Starting)
		return r
	}
	r.add("settings", OK, "each has a value that it may have")
	for _, look := range []func(context.Context, *Report, Options){folder, store, others, queue, archived} {
		func() {
			ctx, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			look(ctx, &r, o)
		}()
	}
	r.settle(o.Starting)
	return r
}

func store(ctx context.Context, r *Report, o Options) {
	if o.MySQLDSN == "" {
		lookAtSQLite(ctx, r, o)
	} else {
		lookAtMySQL(ctx, r, o)
	}
}

// others looks at the other stores, which stop no start while they are away.
func others(ctx context.Context, r *Report, o Options) {
	var wg sync.WaitGroup
	names := slices.Sorted(maps.Keys(o.Others))
	found := make([]Report, len(names))
	for i, name := range names {
		wg.Go(func() {
			of := o
			of.MySQLDSN = o.Others[name]
			lookAtMySQL(ctx, &found[i], of)
		})
	}
	wg.Wait()
	for i, name := range names {
		for _, l := range found[i].Lines {
			l.Text = "store " + name + ": " + strings.ReplaceAll(l.Text, "BROKER_MYSQL_DSN:", "BROKER_MYSQL_DSNS:")
			l.Stops = l.Stops && l.State != Unreachable
			r.Lines = append(r.Lines, l)
		}
	}
}

// schema compares the version of the tables with the last one that this program knows.
func schema(r *Report, check string, have, known int64) {
	switch err := durable.CheckSchema(have); {
	case err != nil:
		r.stops(check, Mend, "%s", sentence.Of(err))
	case have == 0:
		r.add(check, OK, "there are no tables yet: the first broker makes them (version %d)", known)
	case have < known:
		r.add(check, Note, "the tables have version %d: the first broker, or broker migrate, brings them to version %d; "+
			"make a backup before, because the way back is that backup", have, known)
	default:
		r.add(check, OK, "the tables have version %d", have)
	}
}

// clock says how far a clock is ahead of that of this machine.
func clock(r *Report, check, of string, ahead time.Duration) {
	away := ahead.Abs().Round(time.Millisecond)
	if away <= clockStep {
		r.add(check, OK, "the clock of %s differs by %v from that of this machine", of, away)
		return
	}
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	r.add(check, Mend, "the clock of %s is %v %s that of this machine: let both follow one time server", of, away, word)
}
