package preflight

import (
	"context"
	"errors"
	"io/fs"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

func lookAtSQLite(ctx context.Context, r *Report, o Options) {
	s, err := durable.SurveySQLite(ctx, o.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.add("store", OK, "the embedded store; there is none yet in %s: the first broker makes it", o.DataDir)
	case err != nil:
		r.stops("store", Mend, "BROKER_DATA_DIR: %v: restore a backup (broker restore), or correct who may read the folder",
			sentence.Of(err))
	default:
		r.add("store", OK, "the embedded store: one broker, one machine")
		r.add("store.version", OK, "%s", s.Product)
		schema(r, "store.schema", s.Schema, durable.KnownSchema())
		if s.Unread {
			r.add("store.log", Note, "penstock.db-wal has what was committed last and was not read: that would make a file")
		}
	}
}
