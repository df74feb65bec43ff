package preflight

import (
	"context"
	"errors"

	"github.com/penstock-broker/penstock/internal/feature/archive"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

// archived looks at where retention archives. Without it a broker starts, and removes nothing.
func archived(ctx context.Context, r *Report, o Options) {
	const stays = "retention removes no message without it"
	if o.ArchiveDir != "" {
		there, err := nearest(o.ArchiveDir)
		if err == nil {
			err = diskOf(there).writable
		}
		if err != nil {
			r.add("archive", Mend, "BROKER_ARCHIVE_DIR: no file can be made in %s: %s; %s", o.ArchiveDir, sentence.Of(err),
				stays)
			return
		}
		r.add("archive", OK, "%s may be written", o.ArchiveDir)
		room(r, "archive.room", diskOf(there), 0)
	}
	if o.Probe == nil {
		return
	}
	switch err := o.Probe(ctx); {
	case err == nil:
		r.add("archive", OK, "an object was written to %s, read and removed", o.Bucket)
	case errors.Is(err, archive.ErrNoDelete):
		r.add("archive", Note, "%s; the archive needs no more, and this probe stays", sentence.Of(err))
	case errors.Is(err, archive.ErrRefused), errors.Is(err, archive.ErrDamaged):
		r.add("archive", Mend, "%s; %s", sentence.Of(err), stays)
	default:
		r.add("archive", Unreachable, "%s; %s", sentence.Of(err), stays)
	}
}
