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
	"path/filepath"
	"regexp"
	"slices"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/reaper"
)

// The settings that say where messages are archived.
const (
	archiveDir      = "BROKER_ARCHIVE_DIR"
	archiveEndpoint = "BROKER_ARCHIVE_S3_ENDPOINT"
	archiveBucket   = "BROKER_ARCHIVE_S3_BUCKET"
)

const archiveHelp = "ls prints the files, grep the messages that match a regular expression (RE2) by ID, producer, " +
	"header or payload.\nrestore verifies all files, then publishes their messages to a channel without consumers.\n" +
	"FILE is a folder of the archive, or a file in it, or s3://BUCKET/KEY of one in the store of\n" +
	archiveEndpoint + "; " +
	"for ls and grep by default the whole archive of the settings.\n" +
	"The broker of restore and its tokens come from PENSTOCK_URL and the other variables of docs/clients.md.\n" +
	"See docs/operate/archive.md."

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
		all, err := a.find(ctx, args)
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

// find opens the files of the names, by default of the archive of the settings.
func (a *archiver) find(ctx context.Context, names []string) ([]*archive.Entry, error) {
	var store *archive.S3
	if len(names) == 0 && os.Getenv(archiveDir) != "" {
		names = []string{os.Getenv(archiveDir)}
	} else if len(names) == 0 || slices.ContainsFunc(names, archive.IsS3) {
		cfg, err := readConfig(os.Environ())
		if err != nil {
			return nil, err
		}
		if store = cfg.archiveStore; store != nil && len(names) == 0 {
			names = []string{store.Root()}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("FILE is missing, and neither " + archiveDir + " nor " + archiveEndpoint + " is set")
	}
	all, skipped, err := archive.Find(ctx, store, names)
	return all, cmp.Or(err, errors.Join(skipped...))
}

func (a *archiver) grep(ctx context.Context, pattern string, paths []string) int {
	what, err := regexp.Compile(pattern)
	if err != nil {
		return a.fail(err)
	}
	all, err := a.find(ctx, paths)
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
	all, err := a.find(ctx, files)
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
func (c *config) newArchive() func(ctx context.Context, channel string) (reaper.ArchiveFile, error) {
	var place archive.Place
	switch {
	case c.archiveStore != nil:
		place = archive.NewBucket(c.archiveStore, filepath.Join(c.DataDir, "archive-spool"))
	case c.ArchiveDir != "":
		place = archive.Dir(c.ArchiveDir)
	default:
		return nil
	}
	return func(ctx context.Context, channel string) (reaper.ArchiveFile, error) {
		f, err := archive.Begin(ctx, place, channel)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

// checkArchive checks where messages are archived. It sends nothing.
func (c *config) checkArchive(f *faults) {
	switch {
	case c.ArchiveEndpoint == "" && c.ArchiveBucket == "":
		if c.ArchivePrefix+c.ArchiveAccessKey+c.ArchiveSecretKey != "" { // else nothing would be archived, and removed
			f.add(archiveEndpoint, "is missing, and other settings of BROKER_ARCHIVE_S3_* are set")
		}
		return
	case c.ArchiveEndpoint == "":
		f.add(archiveBucket, "needs "+archiveEndpoint)
		return
	case c.ArchiveBucket == "":
		f.add(archiveEndpoint, "needs "+archiveBucket)
		return
	case c.ArchiveDir != "":
		f.add(archiveDir, "and %s are both set: an archive is in one place", archiveEndpoint)
		return
	}
	s := archive.S3Settings{Endpoint: c.ArchiveEndpoint, Bucket: c.ArchiveBucket, Prefix: c.ArchivePrefix,
		Region: c.ArchiveRegion, AccessKey: c.ArchiveAccessKey, SecretKey: c.ArchiveSecretKey,
		PathStyle: c.ArchivePathStyle, Trailers: c.ArchiveTrailers}
	err := s.Check(c.ArchiveHTTP)
	if err == nil {
		c.archiveStore, err = archive.NewS3(s)
	}
	if err != nil {
		f.add(archiveEndpoint, "and the settings beside it are wrong: %v", err)
	}
}
