package bench

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/penstock-broker/penstock/bench/rehearse"
)

// rehearseCommand breaks an installation of one's own for a while, see rehearse.
func rehearseCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	c, err := rehearse.Parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK, err
	}
	if err != nil {
		return ExitUsage, err
	}
	v, err := rehearse.Run(ctx, c, progress)
	if v == nil {
		return ExitCannotStart, err
	}
	v.Print(out)
	if c.JSON != "" {
		err = errors.Join(err, v.Write(c.JSON))
	}
	switch {
	case !v.OK():
		return ExitPromise, err
	case !v.Well:
		return ExitUnproven, err
	}
	return ExitOK, err
}
