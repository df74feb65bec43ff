package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// mostRows and mostBytes bound what is read at once: the bytes of payloads, and one row more.
	mostRows  = 200
	mostBytes = 4 << 20
	// within bounds a statement.
	within = 30 * time.Second
	// mostError bounds the error that a row keeps, bytes.
	mostError = 500
	// firstRetry is how long a row waits that was refused once. Each refusal doubles it, up to lastRetry.
	firstRetry, lastRetry = 5 * time.Second, time.Hour
	// quietFor is the least time between two lines of the log about the same trouble.
	quietFor = time.Minute
)

// A Publisher stores messages in a channel: a penstock.Client.
type Publisher interface {
	PublishMany(ctx context.Context, channel string, ms []penstock.Message) ([]penstock.Result, error)
}

// Options assemble a Relay.
type Options struct {
	DSN   string // of the database: MySQL, MariaDB, PostgreSQL or SQLite
	Table string
	Poll  time.Duration // between two looks at a table without due rows
	To    Publisher
	Log   *slog.Logger
}

// A Relay publishes the rows of a table.
type Relay struct {
	o       Options
	db      *sql.DB
	d       *dialect
	refused int // rows, since it began
	told    time.Time
}

// Open opens the database. It reads no table yet.
func Open(o Options) (*Relay, error) {
	if !tableName.MatchString(o.Table) {
		return nil, fmt.Errorf("outbox: a table has 1 to 64 letters, digits and _, and none at the beginning that is a "+
			"digit: %.80q is none", o.Table)
	}
	db, d, err := open(o.DSN)
	if err != nil {
		return nil, err
	}
	return &Relay{o: o, db: db, d: d}, nil
}

// Close closes the database.
func (r *Relay) Close() error { return r.db.Close() }

// Refused is how often the broker has refused a row since Open.
func (r *Relay) Refused() int { return r.refused }

// Once publishes the rows that are due, and returns how many the broker has. Its error is that of the
// database or of a broker that cannot be asked.
func (r *Relay) Once(ctx context.Context) (sent int, err error) {
	until := time.Now().UnixMilli() // a row that is refused meanwhile waits for the next time
	for {
		n, read, err := r.round(ctx, until)
		if sent += n; err != nil || read == 0 {
			return sent, err
		}
	}
}

// Run publishes rows until ctx ends. Trouble ends it at the first look only: a table that is missing, or a
// database that refuses, is a mistake of whoever started it.
func (r *Relay) Run(ctx context.Context) error {
	if _, _, err := r.round(ctx, time.Now().UnixMilli()); err != nil && ctx.Err() == nil {
		if _, asked := errors.AsType[*penstock.Error](err); !asked {
			return err
		}
		r.tell(err)
	}
	pause := time.Duration(0)
	for {
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		_, read, err := r.round(ctx, time.Now().UnixMilli())
		switch {
		case err != nil && ctx.Err() == nil:
			r.tell(err)
			pause = time.Second + rand.N(4*time.Second)
		case read == 0:
			pause = r.o.Poll
		default:
			pause = 0
		}
	}
}

func (r *Relay) tell(err error) {
	if time.Since(r.told) >= quietFor {
		r.told = time.Now()
		r.o.Log.Warn("the outbox waits: its rows stay and are tried again", "table", r.o.Table, "error", err)
	}
}

// round publishes the next rows that were due at a time, Unix ms. read is how many there were.
func (r *Relay) round(ctx context.Context, dueMs int64) (sent, read int, err error) {
	tx, err := r.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer tx.end()
	rows, err := r.due(ctx, tx, dueMs)
	if err != nil || len(rows) == 0 {
		return 0, 0, err
	}
	done, refused, err := r.publish(ctx, rows)
	if e := r.note(ctx, tx, done, refused); e != nil {
		return 0, len(rows), errors.Join(err, e)
	}
	if e := tx.commit(); e != nil {
		return 0, len(rows), errors.Join(err, e)
	}
	r.refused += len(refused)
	return len(done), len(rows), err
}

// A work is where the statements of a round run: a transaction where rows are locked meanwhile, otherwise the
// database, so that nobody waits for the broker.
type work struct {
	on interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
	tx *sql.Tx
}

func (r *Relay) begin(ctx context.Context) (work, error) {
	if !r.d.shared {
		return work{on: r.db}, nil
	}
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	return work{tx, tx}, err
}

func (w work) end() {
	if w.tx != nil {
		_ = w.tx.Rollback() // after a commit it does nothing
	}
}

func (w work) commit() error {
	if w.tx == nil {
		return nil
	}
	return w.tx.Commit()
}

// due reads the next rows.
func (r *Relay) due(ctx context.Context, w work, dueMs int64) (out []*row, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	rows, err := w.on.QueryContext(ctx, r.d.of(r.d.due, r.o.Table), dueMs, mostRows)
	if err != nil {
		return nil, fmt.Errorf("outbox: read the table %s: %w", r.o.Table, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; size < mostBytes && rows.Next(); {
		one := &row{}
		err := rows.Scan(&one.id, &one.channel, &one.payload, &one.headers, &one.priority, &one.messageID, &one.attempts)
		if err != nil {
			return nil, fmt.Errorf("outbox: read the table %s: %w", r.o.Table, err)
		}
		size += len(one.payload)
		out = append(out, one)
	}
	return out, rows.Err()
}

// A refusal is a row that the broker does not take.
type refusal struct {
	*row
	err error
}

// publish stores the messages of rows, those of a channel together. done are the rows whose messages the
// broker has; rows that are in neither list are to be tried again, as err says why.
func (r *Relay) publish(ctx context.Context, rows []*row) (done []*row, refused []refusal, err error) {
	channels := map[string][]*row{}
	var order []string
	for _, one := range rows {
		if channels[one.channel] == nil {
			order = append(order, one.channel)
		}
		channels[one.channel] = append(channels[one.channel], one)
	}
	for _, channel := range order {
		var of []*row
		var ms []penstock.Message
		for _, one := range channels[channel] {
			m, err := one.message(r.o.Table)
			if err != nil {
				refused = append(refused, refusal{one, err})
				continue
			}
			of, ms = append(of, one), append(ms, m)
		}
		results, all := r.o.To.PublishMany(ctx, channel, ms)
		if len(results) != len(ms) { // nothing was sent
			if !final(all) {
				return done, refused, all
			}
			for _, one := range of {
				refused = append(refused, refusal{one, all})
			}
			continue
		}
		for i, res := range results {
			switch {
			case res.Err == nil:
				done = append(done, of[i])
			case final(res.Err):
				refused = append(refused, refusal{of[i], res.Err})
			default:
				err = res.Err
			}
		}
		if err != nil {
			break
		}
	}
	return done, refused, err
}

// final reports whether the broker has refused a message, as opposed to being away or too busy. What the
// broker does not let this client do is no fault of a row.
func final(err error) bool {
	e, ok := errors.AsType[*penstock.Error](err)
	if !ok { // the client itself refuses it
		return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	switch e.Status {
	case 401, 403, 408, 425, 429:
		return false
	}
	return e.Status >= 400 && e.Status < 500
}

// note deletes the rows that the broker has, and says in the refused ones when they are tried again.
func (r *Relay) note(ctx context.Context, w work, done []*row, refused []refusal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if err := r.remove(ctx, w, done); err != nil {
		return fmt.Errorf("outbox: delete what is published: %w", err)
	}
	for _, one := range refused {
		pause := min(firstRetry<<min(one.attempts, 20), lastRetry)
		text := one.err.Error()
		text = strings.ToValidUTF8(text[:min(len(text), mostError)], "")
		at := time.Now().Add(pause)
		_, err := w.on.ExecContext(ctx, r.d.of("UPDATE %s SET attempts = attempts + 1, retry_at = ?, error = ? WHERE id = ?",
			r.o.Table), at.UnixMilli(), text, one.id)
		if err != nil {
			return fmt.Errorf("outbox: keep the error of a row: %w", err)
		}
		if one.attempts == 0 {
			r.o.Log.Warn("the broker refuses a row of the outbox; it is tried again", "table", r.o.Table, "id", one.id,
				"channel", one.channel, "again", at.UTC().Format(time.RFC3339), "error", text)
		}
	}
	return nil
}

// remove deletes rows.
func (r *Relay) remove(ctx context.Context, w work, done []*row) error {
	most := len(done)
	if r.d.scans {
		most = 1
	}
	for ; len(done) > 0; done = done[min(most, len(done)):] {
		var ids []any
		for _, one := range done[:min(most, len(done))] {
			ids = append(ids, one.id)
		}
		marks := strings.Repeat(", ?", len(ids))[2:]
		if _, err := w.on.ExecContext(ctx, r.d.of("DELETE FROM %s WHERE id IN ("+marks+")", r.o.Table), ids...); err != nil {
			return err
		}
	}
	return nil
}
