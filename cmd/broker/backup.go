package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// embeddedOnly refuses settings whose store is not the embedded one.
func embeddedOnly(c *config, f *faults) {
	if c.MySQLDSN != "" && f.fine("BROKER_MYSQL_DSN") {
		f.add("BROKER_MYSQL_DSN", "is set: the store is a MySQL server, which has tools of its own for backups")
	}
}

// backupCommand copies the embedded store to a new file.
func backupCommand(args []string, stdout, stderr io.Writer) int {
	return withSignals(func(ctx context.Context) int {
		cfg, err := readConfig(os.Environ(), embeddedOnly)
		if err != nil {
			refuseSettings(stderr, err)
			return exitUsage
		}
		if err := durable.BackupSQLite(ctx, cfg.DataDir, args[0]); err != nil {
			fmt.Fprintf(stderr, "broker: backup: %v\n", sentence.Of(err))
			return exitStore
		}
		fmt.Fprintf(stdout, "%s is a copy of the store in %s\n", args[0], cfg.DataDir)
		return exitClean
	})
}

func prepareRestore(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	force := f.Bool("force", false, "replace the store that is there, and keep it under another name")
	return func(args []string, stdout, stderr io.Writer) int {
		return withSignals(func(ctx context.Context) int { return restore(ctx, args[0], *force, stdout, stderr) })
	}
}

// restore makes a copy of broker backup the embedded store.
func restore(ctx context.Context, file string, force bool, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ(), embeddedOnly, (*config).checkFolder)
	if err != nil {
		refuseSettings(stderr, err)
		return exitUsage
	}
	kept, err := durable.RestoreSQLite(ctx, cfg.DataDir, file, force)
	if err == nil {
		// What the folder knows of the store that was there is not true of this one. That messages are
		// missing which were stored since the copy, whoever restores it knows.
		err = errors.Join(gone(filepath.Join(cfg.DataDir, seenFile)), gone(filepath.Join(cfg.DataDir, wentBackFile)))
	}
	switch {
	case errors.Is(err, durable.ErrDamaged), errors.Is(err, durable.ErrOccupied), errors.Is(err, durable.ErrOwnFile):
		fmt.Fprintf(stderr, "broker: restore: %s; nothing was changed\n", sentence.Of(err))
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "broker: restore: %s\n", sentence.Of(err))
		return exitStore
	}
	fmt.Fprintf(stdout, "%s is the store in %s now\n", file, cfg.DataDir)
	if kept != "" {
		fmt.Fprintf(stdout, "the store that was there is %s\n", kept)
	}
	return exitClean
}

// gone removes a file.
func gone(name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// The embedded Redis remembers nothing across a restart, so a broker on the embedded stores keeps
// the clock of its store in a file beside it. A store that is behind the file was replaced by an
// older one, or lost its write-ahead log.
const (
	seenFile     = "penstock.seen"
	wentBackFile = "STORE-WENT-BACK"
)

// wentBack is what /readyz and the log say then.
const wentBack = "THE EMBEDDED STORE IS OLDER THAN ITS FOLDER: MESSAGES THAT WERE ACKNOWLEDGED ARE MISSING. Restore " +
	"a newer copy, or remove the file " +
	wentBackFile + " from BROKER_DATA_DIR and restart"

// seenStore returns the clock of the store that the folder knows; zero: none. A folder with a
// journal knows at least that its store is not new.
func seenStore(dir string) (c durable.Clock) {
	b, err := os.ReadFile(filepath.Join(dir, seenFile))
	if err == nil && json.Unmarshal(b, &c) == nil {
		return c
	}
	if journals, _ := filepath.Glob(filepath.Join(dir, "journal", "*", "*.wal")); len(journals) > 0 {
		return durable.Clock{Beat: 1}
	}
	return durable.Clock{}
}

// checkFolder compares the embedded store with its folder. The file that it leaves keeps the
// warning until an operator removes it, also across restarts.
func (b *broker) checkFolder(ctx context.Context) error {
	if b.cfg.MySQLDSN != "" {
		return nil
	}
	mark := filepath.Join(b.cfg.DataDir, wentBackFile)
	seen := seenStore(b.cfg.DataDir)
	now, err := b.store.Clock(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if now.WentBack(seen) {
		if err := os.WriteFile(mark, []byte(wentBack+".\n"), 0o600); err != nil {
			return fmt.Errorf("%w: %w", errStore, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		b.warn(wentBack, "folder", b.cfg.DataDir)
	}
	return nil
}

// keepSeen writes the clock of the store beside it, after the store has it.
func (b *broker) keepSeen(c durable.Clock) error {
	if b.cfg.MySQLDSN != "" {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	name := filepath.Join(b.cfg.DataDir, seenFile)
	if err := os.WriteFile(name+".part", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}
