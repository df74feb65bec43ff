package durable

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
)

// What a broker needs of a MySQL user: on the rows, and on the tables for migrations.
var (
	RowRights   = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	TableRights = []string{"CREATE", "ALTER", "INDEX", "DROP"}
)

const (
	selectRole = `
SELECT COALESCE(CURRENT_ROLE(), 'NONE')`

	selectDatabase = `
SELECT DATABASE()`

	showGrants = `
SHOW GRANTS`
)

// askRights compares the grants of the user with what a broker needs. Of grants that it does not understand, and
// where it may not see them, it says so (Unclear): the user may have more rights than it found.
func (s *Survey) askRights(ctx context.Context, db *sql.DB) error {
	var role, database string
	if err := db.QueryRowContext(ctx, selectRole).Scan(&role); err == nil && role != "NONE" {
		s.ByRole = true
		return nil
	}
	var grants []string
	err := db.QueryRowContext(ctx, selectDatabase).Scan(&database)
	if err == nil {
		err = each(ctx, db, showGrants, nil, func(r *sql.Rows) error {
			var line string
			err := r.Scan(&line)
			grants = append(grants, line)
			return err
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	have, clear := rightsOn(database, grants)
	s.Unclear = !clear || err != nil
	for _, right := range slices.Concat(RowRights, TableRights) {
		if !slices.Contains(have, right) {
			s.Missing = append(s.Missing, right)
		}
	}
	return nil
}

// grantLine is a line of SHOW GRANTS about all databases, or those of a pattern: names are quoted with backquotes,
// or with quotes under ANSI_QUOTES.
var grantLine = regexp.MustCompile("^GRANT ([A-Z][A-Za-z_ ,]*) ON " +
	"(?:\\*\\.\\*|`((?:[^`]|``)*)`\\.\\*|\"((?:[^\"]|\"\")*)\"\\.\\*) TO ")

// rightsOn returns the rights on a database that lines of SHOW GRANTS give, and whether it understood each line that
// may matter. A pattern of a database is one of LIKE with backslashes, whatever the mode of the session.
func rightsOn(database string, grants []string) (have []string, clear bool) {
	clear = len(grants) > 0
	for _, line := range grants {
		m := grantLine.FindStringSubmatch(line)
		if m == nil {
			clear = false // a role, a grant of one table, a revoke of a part, a proxy
			continue
		}
		pattern := strings.ReplaceAll(m[2], "``", "`") + strings.ReplaceAll(m[3], `""`, `"`)
		if pattern != "" {
			exact := literally(pattern) == database
			if !exact && !like(pattern).MatchString(database) {
				continue
			}
			// Under partial_revokes of MySQL a wildcard is a character, and names may differ in case.
			clear = clear && exact
		}
		for _, right := range strings.Split(m[1], ",") {
			right = strings.ToUpper(strings.TrimSpace(right))
			if right == "ALL" || right == "ALL PRIVILEGES" {
				have = append(append(have, RowRights...), TableRights...)
			}
			have = append(have, right)
		}
	}
	return have, clear
}

// literally is a pattern without the backslashes before wildcards.
func literally(pattern string) string {
	return strings.NewReplacer(`\_`, `_`, `\%`, `%`, `\\`, `\`).Replace(pattern)
}

// like is the pattern of LIKE as a regular expression, in any case.
func like(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?is)^")
	escaped := false
	for _, c := range pattern {
		switch {
		case escaped:
			b.WriteString(regexp.QuoteMeta(string(c)))
			escaped = false
		case c == '\\':
			escaped = true
		case c == '%':
			b.WriteString(".*")
		case c == '_':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}
