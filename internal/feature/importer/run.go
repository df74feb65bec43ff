package importer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

const (
	// recent is how far a look of a run that follows goes back: a row of a slow transaction, or of a broker with a
	// slow clock, appears behind newer ones.
	recent = 15 * time.Minute
	// A run that follows looks at all rows again after wholeAfter times the length of the last such look, and at least
	// after wholeLeast.
	wholeAfter, wholeLeast = 10, time.Minute
)

// A Store is a durable.Store as far as it is written to without a Publisher.
type Store interface {
	seedfile.Store
	// ChangeState is SetConsumerState of the consumer of a path.
	ChangeState(ctx context.Context, path string, p durable.StateChange) (changed bool, err error)
	MessagesByKeys(ctx context.Context, channelNo uint32, keys []string) (map[string]ident.ID, error)
	ScheduledByKey(ctx context.Context, channelNo uint32, key string) (*durable.Scheduled, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	Record(ctx context.Context, outcomes []durable.Outcome) error
	Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob, error)
}

// Options assemble an Importer.
type Options struct {
	Old         *Old
	Seed        Seed // of the INI file, if there is one
	Store       Store
	Catalogue   *catalogue.Catalogue
	Publisher   *publish.Publisher // without journal and quota, and with a MinSchedule of 0
	Egress      egress.Policy
	TokenHeader string // of deliveries
	NowMs       func() int64

	DryRun   bool // stores resources only: the store is one to be thrown away
	Follow   bool
	Paused   bool // new consumers wait for Resume
	Resume   bool // consumers that wait are let go once everything is here
	OpenOnly bool // leaves messages out that have no open and no dead job
	Poll     time.Duration

	Out io.Writer // what is to be told of rows, and the report
	Log *slog.Logger
}

// An Importer moves a broker of the older implementation into a store.
type Importer struct {
	o       Options
	tell    teller
	targets map[string]*target            // by the primary key of the consumer
	ids     map[string]map[string]*string // of what is here: by kind and name in the old database
	looked  time.Time                     // at producers, channels and consumers
}

// New returns an importer. The catalogue is refreshed by it.
func New(o Options) *Importer {
	return &Importer{o: o, tell: teller{out: o.Out, told: map[string]bool{}}}
}

// Run imports, and prints the report. Its error is that of a database or of a store; a report that is not
// Complete is none. The end of ctx ends a run that follows, and is an error of any other one.
func (im *Importer) Run(ctx context.Context) (*Report, error) {
	r, err := im.pass(ctx, place{})
	if err == nil {
		err = im.scheduled(ctx, r)
	}
	if im.o.Follow && err == nil {
		im.report(r)
		r, err = im.follow(ctx, r)
	}
	if ctx.Err() != nil && im.o.Follow {
		err = nil
	}
	if err != nil {
		return r, err
	}
	im.report(r)
	if im.o.Resume {
		err = im.release(ctx, r)
	}
	return r, err
}

// release lets the consumers go that wait for the switch, if everything is here.
func (im *Importer) release(ctx context.Context, r *Report) error {
	if !r.Complete() || r.Left > 0 {
		fmt.Fprintln(im.o.Out, "no consumer is resumed: not everything is here. Without --resume the rest stays as it is; "+
			"POST .../resume of a consumer resumes it in any case")
		return nil
	}
	n, err := im.resume(ctx)
	if err == nil {
		fmt.Fprintf(im.o.Out, "%d consumers are resumed\n", n)
	}
	return err
}

func (im *Importer) report(r *Report) {
	here := "here"
	if im.o.DryRun {
		here = "would be here"
	}
	r.print(im.o.Out, here)
	if !im.o.DryRun {
		fmt.Fprintf(im.o.Out, "%d messages were imported by the last look at all rows, %d jobs of earlier ones ended\n",
			r.Imported, r.Ended)
	}
}

// follow looks for what is new until ctx ends, and returns the report of the last look at all rows. What fails is
// tried again: neither the old broker nor this one has to be there all the time.
func (im *Importer) follow(ctx context.Context, last *Report) (*Report, error) {
	im.o.Log.Info("following: SIGINT or SIGTERM ends it, and another run goes on", "poll", im.o.Poll.String())
	whole, took := time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(im.o.Poll):
		}
		if time.Since(whole) > max(wholeLeast, wholeAfter*took) {
			begun := time.Now()
			r, err := im.pass(ctx, place{})
			if err == nil {
				last, whole, took = r, time.Now(), time.Since(begun)
				im.o.Log.Info("all rows were compared", "imported", r.Imported, "ended", r.Ended, "refused", r.Refused)
				continue
			}
			im.warn(ctx, err)
			continue
		}
		p, err := im.o.Old.since(ctx, recent)
		if err == nil {
			var r *Report
			if r, err = im.pass(ctx, p); err == nil && r.Imported+r.Ended > 0 {
				im.o.Log.Info("new rows", "imported", r.Imported, "ended", r.Ended)
			}
		}
		im.warn(ctx, err)
	}
}

func (im *Importer) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		im.o.Log.Warn("the import waits, and goes on later", "error", err)
	}
}
