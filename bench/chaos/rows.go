//go:build unix

package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// numbers returns the store's number of each channel and consumer of the plan.
func (r *rig) numbers(ctx context.Context) (channels, consumers []int64, err error) {
	for _, id := range r.plan.Channels {
		var no int64
		if err := r.db.QueryRowContext(ctx, "SELECT no FROM "+database+".channels WHERE id = ?", id).Scan(&no); err != nil {
			return nil, nil, fmt.Errorf("number of channel %s: %w", id, err)
		}
		channels = append(channels, no)
	}
	for _, k := range r.plan.Consumers {
		var no int64
		if err := r.db.QueryRowContext(ctx, "SELECT no FROM "+database+".consumers WHERE channel_no = ? AND id = ?",
			channels[k.Channel], k.ID).Scan(&no); err != nil {
			return nil, nil, fmt.Errorf("number of consumer %s: %w", k.ID, err)
		}
		consumers = append(consumers, no)
	}
	return channels, consumers, nil
}

// open counts the jobs that are neither delivered nor dead, by the store alone, the messages that wait
// for their time or in a bulk, and the exchanges and replays that are not over.
func (r *rig) open(ctx context.Context) (open int64, err error) {
	channels, consumers, err := r.numbers(ctx)
	if err != nil {
		return 0, err
	}
	for i, k := range r.plan.Consumers {
		var stored, over int64
		bit := 0x80 >> r.plan.position(i) // of the first byte of a set of positions
		err := r.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+database+".messages WHERE channel_no = ? AND (addressed "+
			"IS NULL OR ORD(addressed) & ? > 0)"+
			" AND (left_out IS NULL OR ORD(left_out) & ? = 0)", channels[k.Channel], bit, bit).Scan(&stored)
		if err == nil {
			err = r.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM "+database+".deliveries WHERE consumer_no = ?) + "+
				"(SELECT COUNT(*) FROM "+database+".dead_jobs d WHERE consumer_no = ? AND NOT EXISTS "+
				"(SELECT 1 FROM "+database+".deliveries e WHERE e.consumer_no = d.consumer_no AND e.message_id = d.message_id))",
				consumers[i], consumers[i]).Scan(&over)
		}
		if err != nil {
			return 0, fmt.Errorf("count open jobs of %s: %w", k.ID, err)
		}
		open += stored - over
	}
	for _, query := range []string{
		"SELECT COUNT(*) FROM " + database + ".scheduled WHERE status = 0",
		// Each row of a bulk that is not over is a message to come.
		"SELECT COALESCE(SUM(1 + GREATEST(total - row_no, 0)), 0) FROM " + database + ".bulks WHERE state IN (1, 2)",
		fmt.Sprintf("SELECT COUNT(*) FROM "+database+".exchanges WHERE state = %d OR state = %d AND goes_back = 1",
			durable.DeliveredReceiver, durable.ResponseReceived),
		fmt.Sprintf("SELECT COUNT(*) FROM "+database+".replays WHERE state < %d", durable.ReplayDone),
	} {
		var n int64
		if err := r.db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return 0, fmt.Errorf("%s: %w", query, err)
		}
		open += n
	}
	return open, nil
}

// gone is the database with the rows that brokers have removed, which are also evidence.
const gone = "gone"

// archive has MySQL keep every message that is removed, with its outcomes and failed
// attempts: what the retention took is checked like what is still there. Dead letters
// keep their messages in a campaign, so of those nothing is removed that counts.
func (r *rig) archive(ctx context.Context) error {
	statements := []string{"CREATE DATABASE " + gone}
	for _, table := range []string{"messages", "deliveries", "attempts", "exchanges"} {
		var columns string
		err := r.db.QueryRowContext(ctx, "SELECT GROUP_CONCAT('OLD.', column_name ORDER BY ordinal_position) FROM "+
			"information_schema.columns "+
			"WHERE table_schema = ? AND table_name = ?", database, table).Scan(&columns)
		if err != nil {
			return fmt.Errorf("columns of %s: %w", table, err)
		}
		statements = append(statements,
			"CREATE TABLE "+gone+"."+table+" LIKE "+database+"."+table,
			"CREATE TRIGGER "+database+".keep_"+table+" AFTER DELETE ON "+database+"."+table+
				" FOR EACH ROW REPLACE INTO "+gone+"."+table+" VALUES ("+columns+")")
	}
	for _, statement := range statements {
		if _, err := r.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// readStore reads every message and every outcome, also of those that were removed,
// as they are at one moment: brokers go on removing.
func (r *rig) readStore(ctx context.Context, e *Evidence) error {
	channels, consumers, err := r.numbers(ctx)
	if err != nil {
		return err
	}
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was changed
	e.Jobs = make([]Outcomes, len(consumers))
	for k := range e.Jobs {
		e.Jobs[k] = Outcomes{Delivered: map[ident.ID]bool{}, Ended: map[ident.ID]success{}, Dead: map[ident.ID]bool{},
			Failed: map[failure][]failedDelivery{}}
	}
	for _, from := range []string{gone, database} {
		for c, no := range channels {
			if err := readMessages(ctx, tx, e, from, c, no); err != nil {
				return err
			}
		}
		for k, no := range consumers {
			if err := readOutcomes(ctx, tx, &e.Jobs[k], from, no); err != nil {
				return err
			}
			if err := readExchanges(ctx, tx, e, from, k, no); err != nil {
				return err
			}
		}
	}
	for k, no := range consumers {
		if err := readDead(ctx, tx, &e.Jobs[k], no); err != nil {
			return err
		}
	}
	return nil
}

func readMessages(ctx context.Context, tx *sql.Tx, e *Evidence, from string, channel int, no int64) error {
	query := "SELECT id, msg_key, audience, priority, LEFT(payload, 10), LEFT(SHA2(payload, 256), 16) FROM " + from +
		".messages WHERE channel_no = ?"
	return readRows(ctx, tx, query, no, func(rows *sql.Rows) error {
		s := Stored{Channel: channel, Removed: from == gone}
		var id, begin []byte
		err := rows.Scan(&id, &s.Key, &s.Audience, &s.Priority, &begin, &s.Hash)
		copy(s.ID[:], id)
		var ok bool
		if s.Seq, ok = parseSeq(begin); !ok {
			s.Seq = -1
		}
		e.Stored = append(e.Stored, s)
		return err
	})
}

// readDead reads the jobs that are dead and not delivered, since a delivery outranks a dead letter.
func readDead(ctx context.Context, tx *sql.Tx, o *Outcomes, no int64) error {
	return readRows(ctx, tx, "SELECT message_id FROM "+database+".dead_jobs WHERE consumer_no = ?", no,
		func(rows *sql.Rows) error {
			var id []byte
			err := rows.Scan(&id)
			if !o.Delivered[idOf(id)] {
				o.Dead[idOf(id)] = true
			}
			return err
		})
}

func readOutcomes(ctx context.Context, tx *sql.Tx, o *Outcomes, from string, no int64) error {
	err := readRows(ctx, tx, "SELECT message_id, attempts, at_ms FROM "+from+".deliveries WHERE consumer_no = ?", no,
		func(rows *sql.Rows) error {
			var id []byte
			var attempt int
			var ms int64
			err := rows.Scan(&id, &attempt, &ms)
			o.Delivered[idOf(id)] = true
			o.Ended[idOf(id)] = success{attempt, time.UnixMilli(ms)}
			return err
		})
	if err != nil {
		return err
	}
	return readRows(ctx, tx, "SELECT message_id, attempt, duration_ms, error FROM "+from+".attempts WHERE consumer_no = ?",
		no, func(rows *sql.Rows) error {
			var id []byte
			var attempt int
			var ms int64
			var f failedDelivery
			err := rows.Scan(&id, &attempt, &ms, &f.Error)
			f.Took = time.Duration(ms) * time.Millisecond
			key := failure{idOf(id), attempt}
			o.Failed[key] = append(o.Failed[key], f)
			return err
		})
}

func idOf(b []byte) (id ident.ID) {
	copy(id[:], b)
	return id
}

func readRows(ctx context.Context, tx *sql.Tx, query string, arg int64, scan func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query, arg)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return rows.Err()
}

// countLines counts the lines of a file that contain a word.
func countLines(path, word string) (n int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), word) {
			n++
		}
	}
	return n, lines.Err()
}
