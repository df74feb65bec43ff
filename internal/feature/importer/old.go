package importer

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/internal/tool/mysqlurl"
)

// within bounds one transaction that reads a page.
const within = 2 * time.Minute

// ErrNoOld means that a database is not one of the older implementation.
var ErrNoOld = errors.New("importer: the database has no tables of webhook-broker")

// An Old is the database of the older implementation. It is only read.
type Old struct {
	db *sql.DB
	// Columns that older schemas lack.
	headers, consumerType, scheduled bool
}

// OpenOld opens the database of a DSN, see package mysqlurl. No error has the DSN in it.
func OpenOld(ctx context.Context, dsn string) (*Old, error) {
	c, err := mysqlurl.Parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	if c.DBName == "" {
		return nil, fmt.Errorf("importer: the DSN names no database: %w", mysqlurl.ErrForm)
	}
	// Those of the older implementation are for its own statements. Times are read as they are stored, in UTC.
	c.ParseTime, c.MultiStatements, c.Collation, c.InterpolateParams = false, false, "", true
	c.Timeout, c.ReadTimeout, c.WriteTimeout = 30*time.Second, within, within
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("importer: %w", mysqlurl.ErrForm)
	}
	o := &Old{db: sql.OpenDB(connector)}
	o.db.SetMaxOpenConns(2)
	if err := o.look(ctx); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// Close closes the database.
func (o *Old) Close() error { return o.db.Close() }

const selectColumns = `
SELECT
    LOWER(TABLE_NAME),
    LOWER(COLUMN_NAME)
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE()
  AND TABLE_NAME IN ('producer', 'channel', 'consumer', 'message', 'job', 'scheduled_message')`

// needed are columns that each schema of the older implementation has.
var needed = []string{"producer.producerid", "channel.channelid", "consumer.callbackurl", "message.messageid",
	"message.payload", "message.priority", "job.retryattemptcount", "job.statuschangedat", "job.earliestnextattemptat"}

// look finds out which schema the database has.
func (o *Old) look(ctx context.Context) error {
	has := map[string]bool{}
	err := o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return rowsOf(ctx, tx, selectColumns, nil, func(r *sql.Rows) error {
			var table, column string
			err := r.Scan(&table, &column)
			has[table+"."+column] = true
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, column := range needed {
		if !has[column] {
			table, name, _ := strings.Cut(column, ".")
			return fmt.Errorf("%w: the table %s has no column %s", ErrNoOld, table, name)
		}
	}
	o.headers, o.consumerType = has["message.headers"], has["consumer.type"]
	o.scheduled = has["scheduled_message.dispatchschedule"]
	return nil
}

// reading runs f in a read-only transaction: what it reads is of one moment.
func (o *Old) reading(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("importer: read the old database: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(ctx, tx); err != nil {
		return fmt.Errorf("importer: read the old database: %w", err)
	}
	return nil
}

func rowsOf(ctx context.Context, tx *sql.Tx, query string, args []any, f func(*sql.Rows) error) (err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A resource is a producer, a channel or a consumer of the older implementation.
type resource struct {
	internal     string // ID that other rows have of a consumer
	id           sql.NullString
	name, token  sql.NullString
	callbackURL  sql.NullString
	channel      sql.NullString // ID of the channel of a consumer
	consumerType sql.NullInt64  // 0 pull, 1 push
}

const (
	selectProducers = `
SELECT
    id,
    producerId,
    name,
    token,
    NULL,
    NULL,
    NULL
FROM producer
ORDER BY id`

	selectChannels = `
SELECT
    id,
    channelId,
    name,
    token,
    NULL,
    NULL,
    NULL
FROM channel
ORDER BY id`

	selectConsumers = `
SELECT
    id,
    consumerId,
    name,
    token,
    callbackUrl,
    channelId,
    type
FROM consumer
ORDER BY id`
)

// resources reads all rows of a kind, in the order of their creation.
func (o *Old) resources(ctx context.Context, query string, f func(*resource) error) error {
	if !o.consumerType {
		query = strings.Replace(query, "    type\n", "    1\n", 1)
	}
	return o.reading(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return rowsOf(ctx, tx, query, nil, func(r *sql.Rows) error {
			var one resource
			err := r.Scan(&one.internal, &one.id, &one.name, &one.token, &one.callbackURL, &one.channel, &one.consumerType)
			if err != nil {
				return err
			}
			return f(&one)
		})
	})
}

// timeOf reads a time of the old database, Unix ms; 0: it is none.
func timeOf(text sql.NullString) int64 {
	at, err := time.Parse("2006-01-02 15:04:05", strings.TrimSuffix(text.String, "Z"))
	if err != nil || at.UnixMilli() < 0 {
		return 0
	}
	return at.UnixMilli()
}
