package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/reaper"
)

const archiveDir = "BROKER_ARCHIVE_DIR"

const archiveHelp = "ls prints the files, grep the messages that match a regular expression (RE2) by ID, producer, " +
	"header or payload.\nrestore verifies all files, then publishes their messages to a channel without consumers.\n" +
	"FILE is a folder of the archive, or a file in it; for ls and grep by default all of " + archiveDir + ".\n" +
	"The broker of restore and its tokens come from PENSTOCK_URL and the other variables of docs/clients.md.\n" +
	"See docs/operate/keeping.md."

// prepareArchive adds the flags of broker archive, which stand before ls, grep or restore.
func prepareArchive(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	asJSON := f.Bool("json", false, "of ls: print lines of JSON")
	to := f.String("channel", "", "of restore: the `CHANNEL` to publish to; else that of the messages with -restored")
	return func(args []string, stdout, stderr io.Writer) int {
		return withSignals(func(ctx context.Context) int {
			a := archiver{out: bufio.NewWriter(stdout), stderr: stderr, json: *asJSON, channel: *to}
			code := a.run(ctx, args[0], args[1:])
			if err := a.out.Flush(); err != nil {
				return a.fail(err)
			}
			return code
		})
	}
}

// takesArchive reports whether the arguments of broker archive are whole.
func takesArchive(args []string) bool {
	switch {
	case len(args) == 0:
		return false
	case args[0] == "ls":
		return true
	}
	return len(args) > 1 && (args[0] == "grep" || args[0] == "restore")
}

// An archiver runs broker archive.
type archiver struct {
	out     *bufio.Writer
	stderr  io.Writer
	json    bool
	channel string
}

func (a *archiver) fail(err error) int {
	fmt.Fprintf(a.stderr, "broker archive: %s\n", sentence.Of(err))
	return exitUsage
}

func (a *archiver) run(ctx context.Context, verb string, args []string) int {
	switch verb {
	case "ls":
		all, err := a.find(args)
		if err == nil {
			err = archive.List(a.out, all, a.json)
		}
		if err != nil {
			return a.fail(err)
		}
	case "grep":
		return a.grep(ctx, args[0], args[1:])
	case "restore":
		return a.restore(ctx, args)
	}
	return exitClean
}

// find opens the files of the paths, by default of the archive of the settings.
func (a *archiver) find(paths []string) ([]*archive.Entry, error) {
	if len(paths) == 0 {
		dir := os.Getenv(archiveDir)
		if dir == "" {
			return nil, errors.New("FILE is missing, and " + archiveDir + " is not set")
		}
		paths = []string{dir}
	}
	all, skipped, err := archive.Find(paths)
	return all, cmp.Or(err, errors.Join(skipped...))
}

func (a *archiver) grep(ctx context.Context, pattern string, paths []string) int {
	what, err := regexp.Compile(pattern)
	if err != nil {
		return a.fail(err)
	}
	all, err := a.find(paths)
	if err != nil {
		return a.fail(err)
	}
	found, err := archive.Grep(ctx, a.out, all, what)
	if err != nil {
		return a.fail(err)
	}
	if found == 0 {
		return a.fail(errors.New("no message matches"))
	}
	return exitClean
}

func (a *archiver) restore(ctx context.Context, files []string) int {
	all, err := a.find(files)
	if err == nil && len(all) == 0 {
		err = errors.New("there is no file of an archive")
	}
	if err != nil {
		return a.fail(err)
	}
	client, err := penstock.New(penstock.Options{Logger: slog.New(slog.NewJSONHandler(a.stderr, nil))})
	if err != nil {
		return a.fail(err)
	}
	defer client.Close()
	r := archive.Restoration{To: client, Channel: a.channel}
	done, err := r.Run(ctx, all)
	fmt.Fprintf(a.out, "%d messages restored, %d were restored before\n", done.Messages, done.Repeated)
	switch {
	case errors.Is(err, archive.ErrDamaged), errors.Is(err, archive.ErrHasConsumers):
		return a.fail(fmt.Errorf("%w; nothing was restored", err))
	case err != nil:
		a.fail(err)
		return exitStore
	}
	return exitClean
}

// newArchive returns what begins a file of the archive of the settings; nil: there is none.
func (c *config) newArchive() func(channel string) (reaper.ArchiveFile, error) {
	if c.ArchiveDir == "" {
		return nil
	}
	place := archive.Dir(c.ArchiveDir)
	return func(channel string) (reaper.ArchiveFile, error) {
		f, err := archive.Begin(place, channel)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}
