//go:build unix

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
)

// Role runs the rig's own program as one of its processes, until ctx ends. It is
// for the rig's use: flags --plan and --journal, and for a producer --from.
func Role(ctx context.Context, name string, args []string, progress io.Writer) error {
	f := flag.NewFlagSet("broker bench "+name, flag.ContinueOnError)
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
		r := &producer{plan: p, log: log}
		r.seq.Store(*from)
		r.run(ctx)
	case "chaos-sinks":
		err = (&sinks{plan: p, log: log}).run(ctx)
	case "chaos-puller":
		(&puller{plan: p, log: log}).run(ctx)
	default:
		err = fmt.Errorf("no role %q", name)
	}
	return errors.Join(err, log.Close())
}

// Roles lists the names that Role knows.
var Roles = []string{"chaos-producer", "chaos-sinks", "chaos-puller"}
