package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of the broker

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A plainStore has a table of messages and one of outcomes, and nothing else.
type plainStore struct{ db *sql.DB }

// plainTables are the tables, each with the statement that makes it.
var plainTables = map[string]string{
	"floor_messages": `
CREATE TABLE floor_messages (
  id           binary(12) NOT NULL PRIMARY KEY,
  channel      int unsigned NOT NULL,
  producer     int unsigned NOT NULL,
  priority     smallint NOT NULL,
  content_type varbinary(64) NOT NULL,
  received     bigint NOT NULL,
  payload      mediumblob NOT NULL
) ENGINE=InnoDB`,
	"floor_outcomes": `
CREATE TABLE floor_outcomes (
  id       binary(12) NOT NULL,
  consumer int unsigned NOT NULL,
  status   tinyint NOT NULL,
  attempts smallint NOT NULL,
  changed  bigint NOT NULL,
  PRIMARY KEY (id, consumer)
) ENGINE=InnoDB`,
}

func openPlainStore(ctx context.Context, dsn string) (*plainStore, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	for name, create := range plainTables {
		if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name); err != nil {
			return nil, fmt.Errorf("drop %s: %w", name, err)
		}
		if _, err := db.ExecContext(ctx, create); err != nil {
			return nil, fmt.Errorf("create %s: %w", name, err)
		}
	}
	return &plainStore{db}, nil
}

func (s *plainStore) insert(ctx context.Context, batch []*durable.Message) []error {
	now := time.Now().UnixMilli()
	q := []byte("INSERT INTO floor_messages VALUES ")
	for i, m := range batch {
		q = appendID(q, i, m.ID)
		q = append(q, ",7,3,0,'application/octet-stream',"...)
		q = strconv.AppendInt(q, now, 10)
		q = append(q, ',')
		q = appendQuoted(q, m.Payload)
		q = append(q, ')')
	}
	_, err := s.db.ExecContext(ctx, string(q))
	return slices.Repeat([]error{err}, len(batch))
}

func (s *plainStore) record(ctx context.Context, done []delivered) error {
	now := time.Now().UnixMilli()
	q := []byte("INSERT INTO floor_outcomes VALUES ")
	for i, d := range done {
		q = appendID(q, i, d.id)
		q = append(q, ",1,3,1,"...)
		q = strconv.AppendInt(q, now, 10)
		q = append(q, ')')
	}
	q = append(q, " ON DUPLICATE KEY UPDATE status = VALUES(status), changed = VALUES(changed)"...)
	_, err := s.db.ExecContext(ctx, string(q))
	return err
}

// appendID begins the row with that number.
func appendID(q []byte, row int, id ident.ID) []byte {
	if row > 0 {
		q = append(q, ',')
	}
	return hex.AppendEncode(append(q, "(0x"...), id[:])
}

// appendQuoted appends b as a literal of bytes.
func appendQuoted(q, b []byte) []byte {
	q = append(q, "_binary'"...)
	for _, c := range b {
		switch c {
		case 0:
			q = append(q, '\\', '0')
		case '\'', '\\':
			q = append(q, '\\', c)
		default:
			q = append(q, c)
		}
	}
	return append(q, '\'')
}

// A durableStore is the store of the broker.
type durableStore struct {
	store *durable.Store
	floor *floor
}

func (s durableStore) insert(ctx context.Context, batch []*durable.Message) []error {
	lease, err := s.floor.node.Lease()
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	return s.store.Insert(ctx, lease, batch)
}

func (s durableStore) record(ctx context.Context, done []delivered) error {
	all := make([]durable.Outcome, len(done))
	for i, d := range done {
		all[i] = durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: s.floor.consumer.Load().No, ID: d.id,
			Attempts: 1, AtMs: d.atMs, StatusCode: 200}
	}
	return s.store.Record(ctx, all)
}
