//go:build unix

package bench

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/penstock-broker/penstock/bench/chaos"
)

// chaosCommands are the chaos rig and the processes that it starts.
func chaosCommands() map[string]command {
	commands := map[string]command{"chaos": chaosCommand}
	for _, name := range chaos.Roles {
		commands[name] = func(ctx context.Context, args []string, _, progress io.Writer) (int, error) {
			if err := chaos.Role(ctx, name, args, progress); err != nil && ctx.Err() == nil {
				return ExitCannotStart, err
			}
			return ExitOK, nil
		}
	}
	return commands
}

func chaosCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	c, err := chaos.Parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK, err
	}
	if err != nil {
		return ExitUsage, err
	}
	kept, err := chaos.Run(ctx, c, out, progress)
	switch {
	case !kept:
		return ExitPromise, err
	case err != nil:
		return ExitCannotStart, err
	}
	return ExitOK, nil
}
