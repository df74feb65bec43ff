package durable

import (
	"context"
	"database/sql"
)

// A MarkKind says what a mark of the history tells of.
type MarkKind uint8

// The kinds of marks. The numbers are stored.
const (
	MarkStart   MarkKind = iota + 1 // a broker started
	MarkVersion                     // a version ran for the first time
	MarkPolicy                      // the policy of a channel or a consumer changed
)

// String returns the name of the kind as clients see it.
func (k MarkKind) String() string {
	return [...]string{"", "start", "version", "policy"}[min(k, MarkPolicy)]
}

// A HistoryMark is something that happened, which may explain what the rows show.
type HistoryMark struct {
	AtMs                  int64
	No                    uint32 // random, for two marks of one millisecond
	Kind                  MarkKind
	ChannelNo, ConsumerNo uint32 // 0: it concerns all
	Text                  string
}

func (m *HistoryMark) columns() columns {
	return columns{
		{"at_ms", &m.AtMs},
		{"no", &m.No},
		{"kind", &m.Kind},
		{"channel_no", &m.ChannelNo},
		{"consumer_no", &m.ConsumerNo},
		{"note", asNote{&m.Text}},
	}
}

var (
	insertMark = keepFirst(new(HistoryMark).columns().insert("history_marks"), "no")

	// The newest ones first. Those of no channel concern each one, those of a channel each of its consumers.
	selectHistoryMarks = `
SELECT` + new(HistoryMark).columns().names() + `
FROM history_marks
WHERE at_ms >= ?
  AND at_ms < ?
  AND (? = 0 OR channel_no = 0 OR channel_no = ?)
  AND (? = 0 OR consumer_no = 0 OR consumer_no = ?)
ORDER BY at_ms DESC, no DESC
LIMIT ?`
)

const (
	selectMarkAfter = `
SELECT COALESCE(MAX(at_ms), ?)
FROM (
    SELECT at_ms
    FROM history_marks
    ORDER BY at_ms DESC, no DESC
    LIMIT 1 OFFSET ?
) m`

	deleteMarks = `
DELETE FROM history_marks
WHERE at_ms <= ?`
)

// KeepMark stores a mark. It may be repeated.
func (s *Store) KeepMark(ctx context.Context, m HistoryMark) error {
	return repeat(ctx, "keep a mark", func(ctx context.Context) error {
		return exec(ctx, s.db, s.dialect.sql(insertMark), m.columns().fields()...)
	})
}

// KeepVersion stores a mark for a version, unless the version was seen before, by whatever broker. The
// setting that says so and the mark are one transaction: a crash leaves both or none.
func (s *Store) KeepVersion(ctx context.Context, version string, m HistoryMark) error {
	name := []byte(cutTo("version."+version, maxSettingName))
	return s.run(ctx, transaction{name: "keep a version", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, s.dialect.sql(insertFirstSetting), name, m.AtMs)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return exec(ctx, tx, s.dialect.sql(insertMark), m.columns().fields()...)
	})
}

// Marks returns up to limit marks from fromMs until before toMs, the newest ones, the newest first: those
// that concern a channel and a consumer, of which 0 is any.
func (s *Store) Marks(ctx context.Context, channelNo, consumerNo uint32, fromMs, toMs int64,
	limit int) ([]HistoryMark, error) {
	return readAll[HistoryMark](ctx, s, "read marks", selectHistoryMarks, fromMs, toMs, channelNo, channelNo,
		consumerNo, consumerNo, limit)
}

// ForgetMarks removes the marks before a time, and of the others all but the newest ones. It may be
// repeated.
func (s *Store) ForgetMarks(ctx context.Context, beforeMs int64, keep int) error {
	return repeat(ctx, "remove old marks", func(ctx context.Context) error {
		last := beforeMs - 1
		if err := s.reads.QueryRowContext(ctx, selectMarkAfter, last, keep).Scan(&last); err != nil {
			return err
		}
		return exec(ctx, s.db, deleteMarks, max(last, beforeMs-1))
	})
}
