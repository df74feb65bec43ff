package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/penstock-broker/penstock/internal/tool/mysqlurl"
)

// A dialect is the SQL of a kind of database. %s is the table, ? an argument.
type dialect struct {
	shared bool // rows that are read are locked until the end of the transaction, and skipped by others
	quote  string
	marks  bool // arguments are $1, $2, ...
	scans  bool // a DELETE of many IDs may look at, and wait for, rows of others: one statement a row
	due    string
}

const columns = "id, channel, payload, headers, priority, message_id, attempts"

const selectDue = "SELECT " + columns + " FROM %s WHERE retry_at <= ? ORDER BY id LIMIT ?"

var (
	mysqlDialect    = dialect{shared: true, quote: "`", scans: true, due: selectDue + " FOR UPDATE SKIP LOCKED"}
	postgresDialect = dialect{shared: true, quote: `"`, marks: true, due: selectDue + " FOR UPDATE SKIP LOCKED"}
	sqliteDialect   = dialect{quote: `"`, due: selectDue}
)

// tableName is what a table may be called: the name is a part of message IDs.
var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// of returns a statement about the table.
func (d *dialect) of(statement, table string) string {
	text := fmt.Sprintf(statement, d.quote+table+d.quote)
	for n := 1; d.marks && strings.Contains(text, "?"); n++ {
		text = strings.Replace(text, "?", "$"+strconv.Itoa(n), 1)
	}
	return text
}

var errDSN = errors.New("outbox: the DSN must be like mysql://user:password@host:3306/database, " +
	"user:password@tcp(host:3306)/database, postgres://user:password@host:5432/database or sqlite:/path/of/the.db")

// open opens the database of a DSN. No error has the DSN in it, which has a password.
func open(dsn string) (*sql.DB, *dialect, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch {
	case strings.EqualFold(scheme, "postgres"), strings.EqualFold(scheme, "postgresql"):
		return openPostgres(dsn)
	case strings.EqualFold(scheme, "sqlite"), strings.EqualFold(scheme, "file"):
		return openSQLite(rest)
	}
	c, err := mysqlurl.Parse(dsn)
	if err != nil {
		return nil, nil, errDSN
	}
	return openMySQL(c)
}

func openMySQL(c *mysql.Config) (*sql.DB, *dialect, error) {
	if c.DBName == "" {
		return nil, nil, errDSN
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = within, within, within
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, nil, errDSN
	}
	return sql.OpenDB(connector), &mysqlDialect, nil
}

func openPostgres(dsn string) (*sql.DB, *dialect, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Path == "" || u.Path == "/" {
		return nil, nil, errDSN
	}
	q := u.Query()
	if !q.Has("connect_timeout") {
		q.Set("connect_timeout", strconv.Itoa(int(within.Seconds())))
	}
	u.RawQuery = q.Encode()
	connector, err := pq.NewConnector(u.String())
	if err != nil {
		return nil, nil, errDSN
	}
	return sql.OpenDB(connector), &postgresDialect, nil
}

// openSQLite opens a file that exists: a new one would be an outbox that nobody writes to.
func openSQLite(file string) (*sql.DB, *dialect, error) {
	file, _, _ = strings.Cut(file, "?")
	file = strings.TrimPrefix(file, "//")
	if file == "" {
		return nil, nil, errDSN
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(),
		RawQuery: "mode=rw&_pragma=busy_timeout(10000)"}).String())
	return db, &sqliteDialect, err
}
