package preflight

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// leastFree is the room from which the embedded store, or a journal, has a future.
const leastFree = 100 << 20

// A disk is what a file system says of a folder.
type disk struct {
	writable error // nil: files can be made in the folder
	free     int64 // bytes for users who are not root; below 0: unknown
	inodes   bool  // there is one left
	memory   bool  // it is gone when the machine restarts
}

func folder(_ context.Context, r *Report, o Options) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		dir = o.DataDir
	}
	there, err := nearest(dir)
	if err != nil {
		noFolder(r, o, "%s", err)
		return
	}
	d := diskOf(there)
	switch {
	case d.writable != nil:
		noFolder(r, o, "no file can be made in %s: %v: give it to the user of the broker", there, d.writable)
		return
	case there != dir:
		r.add("folder", OK, "%s will be made", dir)
	default:
		r.add("folder", OK, "%s may be written", dir)
	}
	room(r, "folder.room", d, o.Journal)
}

// nearest returns the folder, or the nearest one above it that is there: a broker makes what is missing.
func nearest(dir string) (string, error) {
	for there := dir; ; there = filepath.Dir(there) {
		switch info, err := os.Stat(there); {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is no folder", there)
		case err == nil, there == filepath.Dir(there):
			return there, nil
		}
	}
}

// noFolder says that nothing can be written. With a MySQL server only a journal would be.
func noFolder(r *Report, o Options, format string, args ...any) {
	if o.MySQLDSN == "" {
		r.stops("folder", Mend, "BROKER_DATA_DIR: "+format, args...)
		return
	}
	r.add("folder", Note, "BROKER_DATA_DIR: "+format+"; channels with ack=journal and an archive in a bucket need it, "+
		"and nothing else", args...)
}

func room(r *Report, check string, d disk, journal int64) {
	const mib = 1 << 20
	switch {
	case d.free < 0:
	case !d.inodes:
		r.add(check, Mend, "no inode is free: remove files")
	case d.free < leastFree:
		r.add(check, Mend, "%d MiB are free: make room", d.free/mib)
	case d.free < journal:
		r.add(check, Note, "%d MiB are free, and BROKER_JOURNAL_MAX_BYTES lets the journal take %d MiB", d.free/mib,
			journal/mib)
	default:
		r.add(check, OK, "%d MiB are free", d.free/mib)
	}
	if d.memory {
		r.add(strings.TrimSuffix(check, ".room")+".disk", Note,
			"the folder is in memory (tmpfs): what is in it ends with the machine")
	}
}
