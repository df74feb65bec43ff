package preflight

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

func lookAtMySQL(ctx context.Context, r *Report, o Options) {
	s, err := durable.SurveyMySQL(ctx, o.MySQLDSN)
	if s.Product == "" && err != nil {
		r.stops("mysql", Unreachable, "BROKER_MYSQL_DSN: %v: start the server, or correct address, user, password "+
			"and database", sentence.Of(err))
		return
	}
	r.add("mysql", OK, "it answers")
	if s.Unfit != nil {
		r.stops("mysql.version", Mend, "%v", sentence.Of(s.Unfit))
		return
	}
	r.add("mysql.version", OK, "%s", s.Product)
	mysqlFlush(r, s.Weak)
	if err := durable.CheckPacket(s.Packet, o.MaxBody); err != nil {
		r.stops("mysql.packet", Mend, "%v, or BROKER_MAX_BODY lower", err)
	} else {
		r.add("mysql.packet", OK, "max_allowed_packet %d takes bodies of %d bytes", s.Packet, o.MaxBody)
	}
	if err != nil {
		r.stops("mysql.session", Unreachable, "the server did not answer each question: %v", sentence.Of(err))
		return
	}
	clock(r, "mysql.clock", "MySQL", s.Ahead)
	schema(r, "mysql.schema", s.Schema, durable.KnownSchema())
	mysqlRights(r, s)
}

func mysqlFlush(r *Report, weak []durable.Weakness) {
	for _, w := range weak {
		if w.Want == "" {
			r.add("mysql.flush", Note, "%s", w.Text)
		} else {
			r.add("mysql.flush", Mend, "%s: set %s=%s", w.Text, w.Setting, w.Want)
		}
	}
	if len(weak) == 0 {
		r.add("mysql.flush", OK, "what is answered 201 is on the disk of the server")
	}
}

func mysqlRights(r *Report, s durable.Survey) {
	all := strings.Join(slices.Concat(durable.RowRights, durable.TableRights), ", ")
	switch {
	case s.ByRole:
		r.add("mysql.rights", Note, "the user has a role, whose rights were not looked at: it needs %s", all)
	case len(s.Missing) > 0 && s.Unclear:
		r.add("mysql.rights", Note, "the user seems to lack %s on the database, but not all its grants were understood "+
			"(roles, wildcards, grants of tables, partial revokes): it needs %s", strings.Join(s.Missing, ", "), all)
	case len(s.Missing) > 0:
		// A user without the rights on tables runs a broker whose tables another one brings up to date.
		stops := s.Schema < durable.KnownSchema() || slices.ContainsFunc(s.Missing, func(right string) bool {
			return slices.Contains(durable.RowRights, right)
		})
		r.add("mysql.rights", Mend, "the user lacks %s on the database: GRANT %s ON it", strings.Join(s.Missing, ", "), all).
			Stops = stops
	default:
		r.add("mysql.rights", OK, "%s", all)
	}
}
