package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// The audit log has an entry for each change by somebody who manages the broker. The context of the request has
// the change (auditlog.Deed), and run writes the entry as the last statements of the first transaction that the
// request commits: both are stored, or neither.
//
// Brokers append one after another, under a lock on the row of the head. That is the last lock which a
// transaction takes: whoever has it waits for nobody, so no circle of waiting transactions contains it. No
// statement changes or removes an entry.

type auditHead struct {
	No   uint64
	AtMs int64
	Hash auditlog.Hash
}

func (h *auditHead) columns() columns {
	return columns{
		{"no", &h.No},
		{"at_ms", &h.AtMs},
		{"hash", asFixed(h.Hash[:])},
	}
}

// An auditRow is an entry with the name of its deed.
type auditRow struct {
	auditlog.Entry
	deed [16]byte
}

func (r *auditRow) columns() columns {
	return append(entryColumns(&r.Entry), column{"deed", asFixed(r.deed[:])})
}

func entryColumns(e *auditlog.Entry) columns {
	return columns{
		{"no", &e.No},
		{"at_ms", &e.AtMs},
		{"who", asBytes{&e.Who}},
		{"from_address", asBytes{&e.From}},
		{"action", asBytes{&e.Action}},
		{"resource", asBytes{&e.Resource}},
		{"before_json", asBlob{&e.Before}},
		{"after_json", asBlob{&e.After}},
		{"hash", asFixed(e.Hash[:])},
	}
}

var (
	selectAuditHead = `
SELECT` + new(auditHead).columns().names() + `
FROM audit_head
WHERE one = 1`

	lockAuditHead = locking(selectAuditHead, updateLock)

	updateAuditHead = `
UPDATE audit_head
SET` + new(auditHead).columns().sets() + `
WHERE one = 1`

	insertAudit = new(auditRow).columns().insert("audit")

	fromAudit = `
SELECT` + entryColumns(new(auditlog.Entry)).names() + `
FROM audit
WHERE no >= ?
  AND no <= ?
  AND (resource = ? OR SUBSTR(resource, 1, ?) = ?)`

	selectAudit     = fromAudit + "\nORDER BY no\nLIMIT ?"
	selectAuditBack = fromAudit + "\nORDER BY no DESC\nLIMIT ?"
)

const (
	selectAuditDeed = `
SELECT COUNT(*)
FROM audit
WHERE deed = ?`

	// The times of entries do not go back, so those of a range of time are a range of numbers.
	selectAuditFrom = `
SELECT no
FROM audit
WHERE at_ms >= ?
ORDER BY at_ms, no
LIMIT 1`

	selectAuditTo = `
SELECT no
FROM audit
WHERE at_ms < ?
ORDER BY at_ms DESC, no DESC
LIMIT 1`
)

// audited returns what writes the entry of the deed of a context after f, and what to call with the result. Where
// the context has none, or its entry is written, f is all there is to do.
func (s *Store) audited(ctx context.Context, t transaction, f func(ctx context.Context, tx *sql.Tx) error) (
	with func(ctx context.Context, tx *sql.Tx) error, done func(error)) {
	d := auditlog.Of(ctx)
	if d == nil || t.reads || t.options != nil && t.options.ReadOnly || !d.Begin() {
		return f, func(error) {}
	}
	with = func(ctx context.Context, tx *sql.Tx) error {
		d.Again()
		if err := f(ctx, tx); err != nil {
			return err
		}
		return s.appendAudit(ctx, tx, d)
	}
	return with, func(err error) { d.End(err == nil) }
}

// appendAudit writes the entry of a deed.
func (s *Store) appendAudit(ctx context.Context, tx *sql.Tx, d *auditlog.Deed) error {
	now, err := s.now(ctx, tx) // before the lock, which others wait for
	if err != nil {
		return err
	}
	var row auditRow
	row.Entry, row.deed = d.Entry()
	row.Who, row.From = cutTo(row.Who, 1024), cutTo(row.From, 255)
	row.Action, row.Resource = cutTo(row.Action, 64), cutTo(row.Resource, 2048)
	head, err := selectOne[auditHead](ctx, tx, s.dialect.sql(lockAuditHead))
	if err != nil {
		return err
	}
	var there int
	if err := tx.QueryRowContext(ctx, selectAuditDeed, row.deed[:]).Scan(&there); err != nil || there > 0 {
		return err
	}
	row.No, row.AtMs = head.No+1, max(now, head.AtMs)
	row.Hash = row.HashAfter(head.Hash)
	if err := exec(ctx, tx, insertAudit, row.columns().fields()...); err != nil {
		return err
	}
	head = auditHead{row.No, row.AtMs, row.Hash}
	return exec(ctx, tx, updateAuditHead, head.columns().fields()...)
}

// Audit writes the entry of the deed of a context, in a transaction of its own: of a change that changes no row, or
// not at once. It is called before the change. A context without a deed, or whose entry is written, needs none.
func (s *Store) Audit(ctx context.Context) error {
	if auditlog.Of(ctx) == nil {
		return nil
	}
	return s.run(ctx, transaction{name: "write the audit log", harmless: true},
		func(context.Context, *sql.Tx) error { return nil })
}

// AuditHead returns the number, time and hash of the last entry of the audit log; 0 of an empty one.
func (s *Store) AuditHead(ctx context.Context) (e auditlog.Entry, err error) {
	err = repeat(ctx, "read the head of the audit log", func(ctx context.Context) error {
		h, err := selectOne[auditHead](ctx, s.reads, selectAuditHead)
		e = auditlog.Entry{No: h.No, AtMs: h.AtMs, Hash: h.Hash}
		return err
	})
	return e, err
}

const (
	// auditScan bounds the entries that one page looks at.
	auditScan = 10_000
	// auditBytes bounds what the entries of a page show of resources, bytes. A page has one entry at least.
	auditBytes = 1 << 20
)

// An AuditQuery says which entries are meant.
type AuditQuery struct {
	FromMs, ToMs int64  // from FromMs to before ToMs; 0: no bound
	Resource     string // it and what is below it; "": all
	First        uint64 // the number that the page begins with; 0: the end of the range from which it is read
	Back         bool   // the newest first
	Limit        int
}

// AuditEntries returns a page of entries, and the number that the next page begins with; 0: there is none. A page
// looks at auditScan entries at most, so one of a Resource may have few entries, or none, and still a next one. It has
// at most auditBytes.
func (s *Store) AuditEntries(ctx context.Context, q AuditQuery) (page []auditlog.Entry, next uint64, err error) {
	err = repeat(ctx, "read the audit log", func(ctx context.Context) error {
		page, next = nil, 0
		least, most, err := s.auditRange(ctx, q)
		if err != nil || least > most {
			return err
		}
		query, from, to := selectAudit, least, min(most, least+auditScan-1)
		if q.Back {
			query, from, to = selectAuditBack, least, most
			if most-least >= auditScan {
				from = most - auditScan + 1
			}
		}
		prefix := ""
		if q.Resource != "" {
			prefix = q.Resource + "/"
		}
		args := []any{from, to, []byte(q.Resource), len(prefix), []byte(prefix), q.Limit + 1}
		left := auditBytes
		err = eachOf(ctx, s.reads, entryColumns, query, args, func(e *auditlog.Entry) {
			left -= len(e.Before) + len(e.After)
			switch {
			case next > 0:
			case len(page) == q.Limit, len(page) > 0 && left < 0:
				next = e.No
			default:
				page = append(page, *e)
			}
		})
		switch {
		case err != nil, next > 0:
			return err
		case !q.Back && to < most:
			next = to + 1
		case q.Back && from > least:
			next = from - 1
		}
		return nil
	})
	return page, next, err
}

// auditRange returns the numbers of the first and the last entry that are meant.
func (s *Store) auditRange(ctx context.Context, q AuditQuery) (least, most uint64, err error) {
	head, err := selectOne[auditHead](ctx, s.reads, selectAuditHead)
	if err != nil {
		return 0, 0, err
	}
	least, most = 1, head.No
	bound := func(of *uint64, query string, ms int64, none uint64) error {
		if ms == 0 {
			return nil
		}
		err := s.reads.QueryRowContext(ctx, query, ms).Scan(of)
		if orNotFound(err) == ErrNotFound {
			*of, err = none, nil
		}
		return err
	}
	if err := bound(&least, selectAuditFrom, q.FromMs, head.No+1); err != nil {
		return 0, 0, err
	}
	if err := bound(&most, selectAuditTo, q.ToMs, 0); err != nil {
		return 0, 0, err
	}
	if q.First > 0 && q.Back {
		most = min(most, q.First)
	} else if q.First > 0 {
		least = max(least, q.First)
	}
	return least, most, nil
}
