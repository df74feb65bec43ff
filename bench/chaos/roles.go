//go:build unix

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
)

// Role runs one of the processes of the rig until ctx ends. Only the rig starts it. The flags are
// --plan, --journal and, for those that publish, --from.
func Role(ctx context.Context, name string, args []string, progress io.Writer) error {
	f := flag.NewFlagSet("bench "+name, flag.ContinueOnError)
	f.SetOutput(progress)
	planPath := f.String("plan", "", "`file` with the plan")
	journalPath := f.String("journal", "", "`file` to write")
	from := f.Int64("from", 0, "sequence number to begin after")
	if err := f.Parse(args); err != nil {
		return err
	}
	p, err := readPlan(*planPath)
	if err != nil {
		return err
	}
	log, err := openJournal(*journalPath)
	if err != nil {
		return err
	}
	switch name {
	case "chaos-producer":
		newProducer(p, log, *from).run(ctx)
	case "chaos-sinks":
		err = (&sinks{plan: p, log: log, polls: map[int64]int{}}).run(ctx)
	case "chaos-puller", victims[pullVictim].role:
		newPuller(p, log).run(ctx)
	case "chaos-mortals":
		newMortals(p, log, *from).run(ctx)
	case neighboursRole:
		err = newNeighbours(p, log).run(ctx)
	case victims[singleVictim].role:
		r := newProducer(p, log, *from)
		r.hurry(ctx, r.publish)
	case victims[batchVictim].role:
		r := newProducer(p, log, *from)
		r.hurry(ctx, r.batch)
	default:
		err = fmt.Errorf("no role %q", name)
	}
	return errors.Join(err, log.Close())
}

// Roles are the names that Role accepts.
var Roles = []string{"chaos-producer", "chaos-sinks", "chaos-puller", "chaos-mortals", neighboursRole,
	victims[singleVictim].role, victims[batchVictim].role, victims[pullVictim].role}
